"""Runs the page's server on this machine, and opens it in a browser."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from fala.errors import DataError
from fala.playground.page.app import make_app
from fala.playground.page.visit import Walk

ADDRESS = "127.0.0.1"


def serve(walk: Walk, port: int, tell: Callable[[str], None], *, browser: bool) -> None:
    """Serve a walk until Ctrl-C.

    Args:
        walk: What is shown; it is begun once the page can be opened.
        port: The port; 0 takes a free one.
        tell: Told the page's address, with its token, once.
        browser: Open it.

    Raises:
        DataError: The port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
        except OSError as error:
            raise DataError(
                f"--port {port} cannot be opened ({error.strerror}); 0 takes a free one"
            ) from error
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        app = make_app(walk, token=token, port=port, ending=lambda: server.should_exit)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, lifespan="off",
            ws="none", http="h11", loop="asyncio", timeout_graceful_shutdown=2,
        )  # fmt: skip
        server = uvicorn.Server(config)
        listening.listen()
        walk.start()
        address = f"http://{ADDRESS}:{port}/#token={token}"
        tell(address)
        if browser:
            # A browser that starts here may take seconds, or stay in the terminal.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        # The server ends by itself and sends the signal once more, which would end us too soon.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
