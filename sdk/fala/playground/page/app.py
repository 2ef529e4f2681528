"""The page's server: its files, and the walk's acts as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib import resources
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fala.errors import DataError, FalaError
from fala.playground.page.guard import Guard
from fala.playground.page.visit import Walk

#: Seconds that a question for news waits, and between two looks whether there are any.
LONGEST_WAIT, LOOK = 20.0, 0.03

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


def make_app(
    walk: Walk, *, token: str, port: int, ending: Callable[[], bool] = lambda: False
) -> Starlette:
    """The application.

    Args:
        walk: What it shows.
        token: See ``Guard``.
        port: See ``Guard``.
        ending: Whether the server ends, and waits for its last answers.
    """
    acts: dict[str, Callable[[dict[str, Any]], object]] = {
        "label": lambda body: walk.label(_whole(body, "post"), _whole(body, "label")),
        "watch": lambda body: walk.watch(_whole(body, "reader")),
        "ship": lambda body: walk.ship(),
        "refine": lambda body: walk.refine(),
        "stop": lambda body: walk.stop(),
        "rollback": lambda body: walk.roll_back(),
        "check": lambda body: walk.check(
            _whole(body, "post"), None if body.get("label") is None else _whole(body, "label")
        ),
        "ask": lambda body: walk.ask(_text(body, "text")),
        "again": lambda body: walk.again(),
    }

    async def state(request: Request) -> Response:
        """What the page shows, as soon as it is newer than what the page has."""
        known, end = request.query_params.get("after"), time.monotonic() + LONGEST_WAIT
        while str(walk.view["version"]) == known and time.monotonic() < end:
            if ending() or await request.is_disconnected():
                break
            await anyio.sleep(LOOK)
        return JSONResponse(walk.view)

    async def act(request: Request) -> Response:
        """Do what the visitor asked for; the walk's errors are answers."""
        name = request.path_params["act"]
        if name not in acts:
            return JSONResponse({"error": f"there is no {name!r}"}, status_code=404)
        try:
            body = json.loads(await request.body() or b"{}")
            if not isinstance(body, dict):
                raise DataError("send a JSON object")
            answer = await run_in_threadpool(acts[name], body)
        except (ValueError, RecursionError):
            return JSONResponse({"error": "that is not JSON"}, status_code=400)
        except FalaError as error:
            return JSONResponse({"error": str(error)}, status_code=409)
        return JSONResponse({"answer": answer, "version": walk.view["version"]})

    routes = [
        Route("/api/state", state, methods=["GET"]),
        Route("/api/{act:str}", act, methods=["POST"]),
        *(Route(path, _file(content, kind)) for path, content, kind in page_files()),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=token, port=port)])


def page_files() -> list[tuple[str, bytes, str]]:
    """The page's files: path, content and type. The page itself is at ``/``."""
    found = []
    for file in (resources.files("fala.playground.page") / "static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        path = "/" if file.name == "index.html" else f"/{file.name}"
        if suffix in _TYPES:
            found.append((path, file.read_bytes(), _TYPES[suffix]))
    return found


def _file(content: bytes, kind: str) -> Callable[[Request], Response]:
    def give(request: Request) -> Response:
        return Response(content, media_type=kind)

    return give


def _whole(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"{name} is a whole number")
    return value


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise DataError(f"{name} is a text")
    return value
