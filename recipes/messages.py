"""Collect the messages of all errors that tests raise, so that a person can read them in one go.

    python recipes/messages.py                       # all tests; prints to messages.txt
    python recipes/messages.py tests/fala --to sdk.txt

Each message stands once, under its class, with the place in the code that made it. Names in
quotes, paths, digests and numbers vary, and signs stand for them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fala import FalaError

ROOT = Path(__file__).parents[1]

#: What varies between two runs, and the sign that stands for it.
VARYING = (
    (re.compile(r"(?<!\w)'[^']*'(?!\w)"), "'NAME'"),
    (re.compile(r"(?:/[\w.+-]+){2,}"), "PATH"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "DIGEST"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
)


class Messages:
    """A plugin of pytest that collects the errors made while tests run.

    Attributes:
        found: The places and messages by the name of the error's class.
    """

    def __init__(self) -> None:
        self.found: dict[str, set[tuple[str, str]]] = {}

    def pytest_sessionstart(self) -> None:
        """Watch the construction of every error under ``FalaError``."""
        construct = FalaError.__new__

        def watched(cls: type[FalaError], *arguments: Any, **options: Any) -> FalaError:  # noqa: ANN401
            if arguments and isinstance(arguments[0], str):
                place = _place(sys._getframe(1))
                if place is not None:
                    message = _without_varying(arguments[0])
                    self.found.setdefault(cls.__name__, set()).add((place, message))
            return construct(cls, *arguments, **options)

        # mypy forbids to replace a method, which is how every raised error is seen here.
        FalaError.__new__ = watched  # type: ignore[method-assign, assignment]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file: each class, and below it its messages by place."""
        for name, messages in sorted(self.found.items()):
            yield f"\n{name}\n"
            for place, message in sorted(messages):
                yield f"  {place}: {message}\n"


def _place(frame: FrameType | None) -> str | None:
    """Return the module of ours that made an error, or None if a test made it."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT / "tests"):
            return None
        if path.is_relative_to(ROOT) and path != Path(__file__):
            return path.relative_to(ROOT).as_posix()
        frame = frame.f_back
    return None


def _without_varying(message: str) -> str:
    for pattern, sign in VARYING:
        message = pattern.sub(sign, message)
    return " ".join(message.split())


def main() -> int:
    """Run the tests, and write their messages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", default=["tests"], help="tests to run (default: all)")
    parser.add_argument("--to", type=Path, default=Path("messages.txt"), help="the file to write")
    options = parser.parse_args()
    messages = Messages()
    status = pytest.main(["-q", "-p", "no:cacheprovider", *options.tests], plugins=[messages])
    options.to.write_text("".join(messages.lines()), encoding="utf-8")
    count = sum(map(len, messages.found.values()))
    print(f"{count} messages of {len(messages.found)} classes are in {options.to}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
