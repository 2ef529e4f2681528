"""Access control of the page's server: only this page, on this machine, with its token.

A page of another site can send requests to this machine's ports. By DNS rebinding it can also read
the responses. Other users of the machine can reach the port as well. Therefore the host of a
request must be this machine, everything below ``/api/`` needs a token that only the printed address
has, and no response may be framed, cached or read as another type. The token is in the address's
fragment, which no browser sends, and then in a header, which no other page can set. There is no
cookie, because the browser would send it to other ports.
"""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
LARGEST_BODY = 16 * 1024  # in bytes
GUARDED = "/api/"


class Guard:
    """Checks every request, and adds ``HEADERS`` to every response.

    Args:
        app: The application behind it.
        token: Token of requests below ``/api/``, as ``Authorization: Bearer``.
        port: Port of the server.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        if rejection := self._rejection(scope):
            status, message = rejection
            response = JSONResponse({"error": message}, status_code=status)
            await response(scope, receive, guarded_send)
            return
        await self._app(scope, receive, guarded_send)

    def _rejection(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            return 421, "this server only accepts requests to 127.0.0.1"
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return 403, "only the page of this server may send requests"
        if not scope["path"].startswith(GUARDED):
            return None
        token = headers.get("authorization", "").encode()
        if not hmac.compare_digest(token, self._expected):
            return (
                403,
                "the token is missing or from an earlier start: open the printed address again",
            )
        if scope["method"] == "POST":
            length = headers.get("content-length", "")
            if not (length.isascii() and length.isdigit()):
                return 411, "Content-Length is missing"
            if len(length) > 9 or int(length) > LARGEST_BODY:
                return 413, f"a body must have at most {LARGEST_BODY} bytes"
            if headers.get("content-type", "").partition(";")[0] != "application/json":
                return 415, "send JSON"
        return None
