"""Silence other libraries' log messages, warnings and telemetry."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence libraries' log messages and warnings while they are imported and while they run.

    Failures are raised as our own errors, which a user would overlook among a tracer's warnings.
    """
    # Some builds of onnxruntime write telemetry to files.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Hide transformers' progress bars, which it also draws without a terminal."""
    from transformers.utils import logging as settings

    shown = settings.is_progress_bar_enabled()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            settings.enable_progress_bar()
