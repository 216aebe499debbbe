"""`python -m legenda.apps`: the command line without its script."""

from legenda.apps.cli import main

main()
