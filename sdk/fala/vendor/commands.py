"""How the project's commands end on a mistake, in one line with status 1; and a bar of progress."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import IO, Any

import click

from fala.errors import FalaError


class Command(click.Command):
    """A command that ends FaLA's errors, the operating system's and Ctrl-C in one line."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _one_line(ctx):
            return super().invoke(ctx)


class Group(click.Group):
    """A group whose commands end so."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was asked for."""
        with _one_line(ctx):
            return super().invoke(ctx)


class _Failure(click.ClickException):
    def __init__(self, program: str | None, message: str) -> None:
        super().__init__(f"{program}: {message}")

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=True)


#: The variable of the environment by which a program asks its command to end when it does.
ENDS_WITH_INPUT = "FALA_ENDS_WITH_INPUT"


def end_with_input() -> None:
    """End this process when standard input does, where the environment asks for that.

    A program that is killed cannot end the commands that it runs; but the pipe to them closes.
    """
    if os.environ.get(ENDS_WITH_INPUT):
        Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    # Not through sys.stdin, whose lock an ending interpreter would wait for.
    while os.read(0, 1024):
        pass
    os._exit(1)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error, where that is a terminal, as a device's ``progress`` function."""
    with click.progressbar(
        length=1, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:

        def progress(stage: str, done: int, total: int) -> None:
            bar.label = stage
            bar.length = total
            bar.update(done - bar.pos)

        yield progress


@contextmanager
def _one_line(ctx: click.Context) -> Iterator[None]:
    program = ctx.find_root().info_name
    try:
        yield
    except FalaError as error:
        raise _Failure(program, str(error)) from error
    except KeyboardInterrupt as error:
        raise _Failure(program, "interrupted") from error
    except ImportError as error:
        # What an extension module makes of Ctrl-C in the middle of its import.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise _Failure(program, "interrupted") from error
        raise
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # The reader of our output has gone: click ends quietly.
        name = "" if error.filename is None else f"{error.filename}: "
        raise _Failure(program, f"{name}{error.strerror or error}") from error
