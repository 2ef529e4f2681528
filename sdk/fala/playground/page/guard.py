"""Who may ask the page's server: this page, in a browser on this machine, with its token.

A page of another site can send requests to this machine's ports, and by a name of its own that it
lets point here (DNS rebinding) even read the answers; other users of the machine can reach the
port as well. So the name that was asked for must be this machine's, what acts or tells anything
needs a token that only the address printed at the start has, and no answer may be framed, cached or
taken for another type. The token travels in the address's fragment, which no browser sends, and
then in a header, which no other page can: there is no cookie that another port could get.
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
LARGEST_BODY = 16 * 1024  # bytes
GUARDED = "/api/"


class Guard:
    """Lets pass what may; every answer gets ``HEADERS``.

    Args:
        app: What is guarded.
        token: What requests below ``/api/`` must have as ``Authorization: Bearer``.
        port: The server's.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        if refusal := self._refusal(scope):
            status, why = refusal
            response = JSONResponse({"error": why}, status_code=status)
            await response(scope, receive, guarded_send)
            return
        await self._app(scope, receive, guarded_send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            return 421, "this server answers to 127.0.0.1 only"
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return 403, "only the page of this server may ask"
        if not scope["path"].startswith(GUARDED):
            return None
        given = headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, self._expected):
            return 403, "the token is missing or of another start: open the address anew"
        if scope["method"] == "POST":
            length = headers.get("content-length", "")
            if not (length.isascii() and length.isdigit()):
                return 411, "say how long the body is"
            if len(length) > 9 or int(length) > LARGEST_BODY:
                return 413, f"a body has {LARGEST_BODY} bytes at most"
            if headers.get("content-type", "").partition(";")[0] != "application/json":
                return 415, "send JSON"
        return None
