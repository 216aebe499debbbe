"""`python -m legenda`: the command line without its script."""

from legenda.cli.main import main

main()
