"""Other libraries' remarks, kept off the screen."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings and logs that are meant for the libraries' authors.

    What goes wrong is raised, and told by our own errors; a user who reads ten lines of remarks
    about a tracer before the one that matters does not find it.
    """
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
