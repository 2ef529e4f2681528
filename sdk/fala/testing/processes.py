"""Runs an app's code in a process of its own, which may be killed."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import multiprocessing
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from fala.base.errors import DataError, FalaError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection  # which a system without processes lacks

# Share of the time limit after which a process prints its stack.
_SHARE = 0.9

#: Sends a JSON value to the parent. It arrives even if the process dies at once.
Say = Callable[[Any], None]


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        said: The values that it passed to ``say``, in order.
        killed: Whether SIGKILL ended it.
        seconds: How long it lived.
    """

    said: tuple[Any, ...]
    killed: bool
    seconds: float


def run_apart(
    work: Callable[[Say], object], *, kill_after: float | None = None, limit: float = 60.0
) -> Ended:
    """Run a function in a fork of this process.

    A fork has this process's memory, but none of its threads: the function opens its own devices,
    and uses none that is open here.

    Args:
        work: The function.
        kill_after: Seconds after which it is killed; None for no kill.
        limit: Seconds after which it counts as hanging.

    Raises:
        DataError: This system has no ``fork``.
        FalaError: The function failed (the message has its traceback), died, or hung.
    """
    if not hasattr(os, "fork"):
        raise DataError("this system cannot fork a process (Windows cannot): skip the test there")
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(work, receive, send, limit))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks and threads; see above
        started = time.monotonic()
        child.start()
    send.close()
    deadline = started + (limit if kill_after is None else min(limit, kill_after))
    lines: list[dict[str, Any]] = []
    timed_out = False
    try:
        with contextlib.suppress(EOFError, OSError):  # an incomplete last line was cut by the kill
            while (remaining := deadline - time.monotonic()) > 0 and receive.poll(remaining):
                lines.append(json.loads(receive.recv_bytes()))
            timed_out = True
        if timed_out or kill_after is not None:
            child.kill()
        child.join()
        with contextlib.suppress(EOFError, OSError):
            while receive.poll():
                lines.append(json.loads(receive.recv_bytes()))
    except BaseException:
        child.kill()
        child.join()
        raise
    finally:
        receive.close()
    seconds, code = time.monotonic() - started, child.exitcode
    for line in lines:
        if "error" in line:
            raise FalaError(f"the code in the process failed:\n{line['error']}")
    if timed_out and kill_after is None:
        raise FalaError(
            f"the code in the process did not end within {limit:g} s; standard error has its stack"
        )
    if code not in (0, -signal.SIGKILL):
        raise FalaError(f"the process died with exit code {code}")
    said = tuple(line["said"] for line in lines)
    return Ended(said, code == -signal.SIGKILL, seconds)


def _work(
    work: Callable[[Say], object], receive: Connection, send: Connection, limit: float
) -> NoReturn:
    """Run the child: it does not close, flush or clean up anything of the parent."""
    receive.close()

    def send_line(message: dict[str, Any]) -> None:
        send.send_bytes(json.dumps(message).encode())

    try:
        # The parent's garbage is not collected here: closing a session may wait for threads that
        # a fork does not have.
        gc.freeze()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
        faulthandler.dump_traceback_later(_SHARE * limit, file=2)
        work(lambda value: send_line({"said": value}))
    except BaseException:
        send_line({"error": traceback.format_exc()})
    finally:
        os._exit(0)


def die() -> NoReturn:
    """End this process at once, without flushing or cleaning up, as a power cut does."""
    os.kill(os.getpid(), signal.SIGKILL)
    while True:  # until the signal arrives
        time.sleep(1)
