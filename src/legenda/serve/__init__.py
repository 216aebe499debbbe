"""The web page and the HTTP API of `legenda serve`."""
