"""The page's server on this machine: its files, and the actions of a visit as JSON."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import signal
import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fala.base.errors import DataError, FalaError
from fala_sim.playground.page.guard import Guard
from fala_sim.playground.page.visit import Visit

_log = logging.getLogger("fala_sim.playground.page")

ADDRESS = "127.0.0.1"

#: Seconds that a request for a newer view waits, and seconds between two checks for a newer view.
LONGEST_WAIT, LOOK = 20.0, 0.03


def serve(visit: Visit, port: int, show: Callable[[str], None], *, browser: bool) -> None:
    """Serve a visit until Ctrl-C.

    Args:
        visit: The visit; it starts when the page can be opened.
        port: The port; 0 for a free port.
        show: Function that is called once, with the page's address and its token.
        browser: Whether to open a browser.

    Raises:
        DataError: The port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
        except OSError as error:
            raise DataError(
                f"--port {port} cannot be opened ({error.strerror}); use --port 0 for a free port"
            ) from error
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        app = make_app(visit, token=token, port=port, ending=lambda: server.should_exit)
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, server_header=False, lifespan="off",
            ws="none", http="h11", loop="asyncio", timeout_graceful_shutdown=2,
        )  # fmt: skip
        # Below "critical", the server logs a traceback for every page that is left before its
        # response.
        server = uvicorn.Server(config)
        listening.listen()
        visit.start()
        address = f"http://{ADDRESS}:{port}/#token={token}"
        show(address)
        if browser:
            # Starting a browser may take seconds, or the browser may run in the terminal.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        # The server raises the signal again, whose default would end this process too early.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


def make_app(
    visit: Visit, *, token: str, port: int, ending: Callable[[], bool] = lambda: False
) -> Starlette:
    """Return the application.

    Args:
        visit: The visit.
        token: Token of the requests; see ``Guard``.
        port: Port of the server; see ``Guard``.
        ending: Function that says whether the server is about to end.
    """
    actions: dict[str, Callable[[dict[str, Any]], object]] = {
        "label": lambda body: visit.label(_whole(body, "post"), _whole(body, "label")),
        "watch": lambda body: visit.watch(_whole(body, "reader")),
        "ship": lambda body: visit.ship(),
        "refine": lambda body: visit.refine(),
        "stop": lambda body: visit.stop(),
        "rollback": lambda body: visit.roll_back(),
        "check": lambda body: visit.check(
            _whole(body, "post"), None if body.get("label") is None else _whole(body, "label")
        ),
        "ask": lambda body: visit.ask(_text(body, "text")),
        "again": lambda body: visit.again(),
    }

    async def state(request: Request) -> Response:
        """Return the view, once it is newer than the page's."""
        version, end = request.query_params.get("after"), time.monotonic() + LONGEST_WAIT
        while str(visit.view["version"]) == version and time.monotonic() < end:
            if ending() or await request.is_disconnected():
                break
            await anyio.sleep(LOOK)
        return JSONResponse(visit.view)

    def route_of(name: str) -> Route:
        async def act(request: Request) -> Response:
            """Run an action of the user; the response contains the visit's errors."""
            try:
                body = json.loads(await request.body() or b"{}")
                if not isinstance(body, dict):
                    raise DataError("send a JSON object")
                result = await run_in_threadpool(actions[name], body)
            except ClientDisconnect:  # the page was left while it sent this request
                return Response()
            except (ValueError, RecursionError):
                return JSONResponse({"error": "the body must be JSON"}, status_code=400)
            except FalaError as error:
                return JSONResponse({"error": str(error)}, status_code=409)
            except Exception:
                _log.exception("%s failed", name)
                message = f"this failed ({name}); see the terminal of the command"
                return JSONResponse({"error": message}, status_code=500)
            return JSONResponse({"answer": result, "version": visit.view["version"]})

        return Route(f"/{name}", act, methods=["POST"])

    api = [Route("/state", state, methods=["GET"]), *map(route_of, actions)]
    files = StaticFiles(packages=[("fala_sim.playground.page", "static")], html=True)
    return Starlette(
        routes=[Mount("/api", routes=api), Mount("/", files)],
        middleware=[Middleware(Guard, token=token, port=port)],
    )


def _whole(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"{name} must be a whole number")
    return value


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise DataError(f"{name} must be a text")
    return value
