"""What all of the project's commands have alike.

``-h`` and ``--help``, with every name that an option takes; a mistake told in one line; and how a
command ends:

    0    it did what was asked
    1    a user's mistake, a missing extra, or what `fala-device doctor` found
    2    the command line itself is wrong, as click says
    130  Ctrl-C
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import IO, Any, ClassVar

import click

from fala.cli.names import listed
from fala.errors import FalaError

MISTAKE, INTERRUPTED = 1, 130

#: The outermost commands' ``context_settings``: what is inside inherits them.
SETTINGS = {"help_option_names": ["-h", "--help"]}


class Command(click.Command):
    """A command that ends FaLA's errors, the operating system's and Ctrl-C in one line."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _one_line(ctx, None):
            return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names that options take, and what else the command says at its end."""
        for title, rows in listed(self.params):
            with formatter.section(f"{title} is one of"):
                formatter.write_dl(rows)
        super().format_epilog(ctx, formatter)


class Group(click.Group):
    """A group whose commands end so.

    Attributes:
        extra: The extra of the installation that its commands need; None is the base install.
    """

    command_class = Command
    extra: ClassVar[str | None] = None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was asked for."""
        with _one_line(ctx, self.extra):
            return super().invoke(ctx)


Group.group_class = Group


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


class _Failure(click.ClickException):
    exit_code = MISTAKE

    def __init__(self, program: str | None, message: str) -> None:
        super().__init__(f"{program}: {message}")

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=True)


class _Interruption(_Failure):
    exit_code = INTERRUPTED

    def __init__(self, program: str | None, message: str = "interrupted") -> None:
        super().__init__(program, message)


@contextmanager
def _one_line(ctx: click.Context, extra: str | None) -> Iterator[None]:
    program = ctx.find_root().info_name
    try:
        yield
    except FalaError as error:
        # One that says how to go on after Ctrl-C is still Ctrl-C.
        kind = _Interruption if isinstance(error.__cause__, KeyboardInterrupt) else _Failure
        raise kind(program, str(error)) from error
    except (KeyboardInterrupt, click.Abort) as error:
        raise _Interruption(program) from error
    except ImportError as error:
        # What an extension module makes of Ctrl-C in the middle of its import.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise _Interruption(program) from error
        # A module of our own that is not there is no missing extra, but a broken installation.
        if extra is None or (error.name or "").partition(".")[0] in _OURS:
            raise
        raise _Failure(
            program, f"this needs an extra: pip install 'fala-sdk[{extra}]' ({error})"
        ) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # The reader of our output has gone: click ends quietly.
        name = "" if error.filename is None else f"{error.filename}: "
        raise _Failure(program, f"{name}{error.strerror or error}") from error


_OURS = {"fala", "fala_export", "fala_sim"}
