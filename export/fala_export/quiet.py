"""Other libraries' remarks, kept off the screen and the disk."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator


def first_line(error: Exception) -> str:
    """What a library's error says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what libraries say to their authors, while they are imported and while they work.

    What goes wrong is raised, as our own errors; a user who reads ten lines of remarks
    about a tracer before the one that matters does not find it.
    """
    # Some builds of onnxruntime keep notes of their use in files.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
