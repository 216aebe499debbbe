"""The middleware that limits requests by site, size, rate, time and number, and sets the headers of security."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from legenda.serve.limits import Limits, RateLimiter

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "frame-ancestors 'none'",  # has no effect in the policy of the page itself
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Refuse requests beyond the limits; a body is counted as it arrives, whatever its Content-Length says."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.rate = RateLimiter(limits.per_minute)
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._find_refusal(scope) if scope["method"] == "POST" else None
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        self.active += scope["method"] == "POST"
        try:
            await self.app(scope, self._limit_body(receive), send_with_headers)
        finally:
            self.active -= scope["method"] == "POST"

    def _find_refusal(self, scope: Scope) -> JSONResponse | None:
        headers, client = Headers(scope=scope), scope.get("client")
        if _is_cross_site(headers):
            return error_response(403, "the request was sent by another site; use the page of this server")
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return error_response(411, "the request has no Content-Length header; send one")
        if len(length) > 18 or int(length) > self.limits.max_bytes:
            return error_response(413, self.limits.too_large)
        if self.active >= self.limits.max_active:
            return error_response(
                503, "the server is answering too many requests; try again in a few seconds", retry_after=5
            )
        seconds = self.rate.admit(client[0] if client else "")
        if seconds > 0:
            sentence = f"too many requests from this address; try again in {seconds:.0f} s"
            return error_response(429, sentence, retry_after=seconds + 1)
        return None

    def _limit_body(self, receive: Receive) -> Receive:
        """Return `receive` that raises HTTPException for a body that is too large or too slow."""
        size, complete = 0, False
        deadline = asyncio.get_running_loop().time() + self.limits.body_timeout

        async def limited() -> Message:
            nonlocal size, complete
            try:
                async with asyncio.timeout_at(None if complete else deadline):
                    message = await receive()
            except TimeoutError:
                sentence = f"the request did not arrive within {self.limits.body_timeout:g} s; send a smaller image"
                raise HTTPException(408, sentence, {"Connection": "close"}) from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self.limits.max_bytes:
                raise HTTPException(413, self.limits.too_large)
            return message

        return limited


def error_response(code: int, sentence: str, *, retry_after: float | None = None) -> JSONResponse:
    """Return an error in one sentence; retry_after: seconds until the request may be sent again."""
    headers = None if retry_after is None else {"Retry-After": f"{retry_after:.0f}"}
    return JSONResponse({"detail": sentence}, code, headers)


def _is_cross_site(headers: Headers) -> bool:
    """Return whether a browser sent the request from another origin; other programs send neither header."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
