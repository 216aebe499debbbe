"""Images from the web and from object stores, by their URLs."""

from __future__ import annotations

import http.client
import queue
import re
import threading
import time
import urllib.error
import urllib.request
from typing import IO
from urllib.parse import quote, urlsplit
from urllib.request import Request

from legenda.errors import ConfigError, DataError, first_line, import_extra

MAX_FETCHED_BYTES = 64 << 20
FETCH_TIMEOUT_S = 60
"""Seconds for a URL in all."""
_FETCH_PAUSES_S = (1.0, 2.0)
"""The waits before a second and a third attempt."""
_WEB = re.compile("https?://", re.IGNORECASE)
_USER = re.compile("//[^/?#]*@")
_PERMANENT = (FileNotFoundError, ConfigError, ValueError, http.client.InvalidURL)


def is_web_url(name: str) -> bool:
    """Return whether a name is a URL of http or https."""
    return _WEB.match(name) is not None


def fetch(url: str) -> bytes:
    """Return the content of a URL of http, https or an object store; an attempt that fails is repeated after a pause.

    Raise DataError where it does not exist, cannot be fetched in three attempts and FETCH_TIMEOUT_S seconds in all, has
    over MAX_FETCHED_BYTES, or names a user.
    """
    try:
        names_user = is_web_url(url) and "@" in urlsplit(url).netloc
    except ValueError as error:
        raise DataError(f"{url} cannot be fetched ({error}); check the address, or leave it out") from error
    if names_user:
        raise DataError(f"{_USER.sub('//', url)} has a user or a password, which are not sent; download it")
    results: queue.SimpleQueue[bytes | DataError] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put(_fetch(url))
        except DataError as error:
            results.put(error)

    # a server may send a byte now and then, for ever; the thread then ends with the process, or the connection
    threading.Thread(target=work, daemon=True, name="fetch").start()
    try:
        content = results.get(timeout=FETCH_TIMEOUT_S)
    except queue.Empty:
        content = DataError(f"{url} was not fetched in {FETCH_TIMEOUT_S} s; check the address, or leave it out")
    if isinstance(content, DataError):
        raise content
    return content


def _fetch(url: str) -> bytes:
    content = b""
    for pause in (*_FETCH_PAUSES_S, None):
        try:
            with _open_url(url) as file:
                content = file.read(MAX_FETCHED_BYTES + 1)
            break
        except Exception as error:  # http.client's and fsspec's errors have no common base class
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429
            if pause is None or refused or isinstance(error, _PERMANENT):
                raise DataError(
                    f"{url} cannot be fetched ({first_line(error)}); check the address, or leave it out"
                ) from error
            time.sleep(pause)
    if len(content) > MAX_FETCHED_BYTES:
        raise DataError(f"{url} is larger than {MAX_FETCHED_BYTES >> 20} MiB; scale it down or leave it out")
    return content


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirections to http and https alone."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        """Return the next request; raise ValueError for an address of another kind."""
        if not is_web_url(newurl):
            raise ValueError("it leads to an address that is not of http or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open_url(url: str) -> IO[bytes]:
    if is_web_url(url):
        opener = urllib.request.build_opener(_WebRedirects)
        return opener.open(quote(url, safe="%/:=&?~#+!$,;'@()*[]"), timeout=FETCH_TIMEOUT_S)
    system, name = import_extra("fsspec", "ray").core.url_to_fs(url)
    return system.open(name, "rb")
