"""What all commands of the project share: errors in one line, exit codes and Ctrl-C.

``-h`` and ``--help`` list every name that an option takes. An error is printed in one line. The
exit status is:

    0    success
    1    an error, a missing extra, or damage that `fala-device doctor` reports
    2    a wrong command line, reported by click
    130  Ctrl-C
"""

from __future__ import annotations

import _thread
import errno
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, ClassVar

import click

from fala.base.errors import FalaError, install_hint, printable
from fala.cli.names import help_rows, with_suggestion

MISTAKE, INTERRUPTED = 1, 130

#: The ``context_settings`` of the outermost commands, which subcommands inherit.
SETTINGS = {"help_option_names": ["-h", "--help"]}


class Command(click.Command):
    """A command that prints errors of FaLA and the operating system, and Ctrl-C, in one line."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _errors_in_one_line(ctx, None):
            return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names that options take, then the command's own epilog."""
        for title, rows in help_rows(self.params):
            with formatter.section(f"Names for {title}"):
                formatter.write_dl(rows)
        super().format_epilog(ctx, formatter)


class Group(click.Group):
    """A group of such commands.

    Attributes:
        extra: The extra that the commands need; None if the base install is enough.
    """

    command_class = Command
    extra: ClassVar[str | None] = None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _errors_in_one_line(ctx, self.extra):
            return super().invoke(ctx)


Group.group_class = Group


class _Failure(click.ClickException):
    def __init__(self, program: str | None, message: str, exit_code: int = MISTAKE) -> None:
        super().__init__(printable(f"{program}: {message}"))
        self.exit_code = exit_code  # type: ignore[misc]  # a class variable to click

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=True)


@contextmanager
def _errors_in_one_line(ctx: click.Context, extra: str | None) -> Iterator[None]:
    program = ctx.find_root().info_name
    try:
        with dropped_interrupts_repeated():
            yield
    except FalaError as error:
        # An error that Ctrl-C caused has advice on how to resume.
        status = INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else MISTAKE
        raise _Failure(program, with_suggestion(ctx, str(error)), status) from error
    except (KeyboardInterrupt, click.Abort) as error:
        raise _Failure(program, "interrupted", INTERRUPTED) from error
    except ImportError as error:
        # Extension modules raise ImportError when Ctrl-C interrupts their import.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise _Failure(program, "interrupted", INTERRUPTED) from error
        # A missing module of the project means a broken installation, not a missing extra.
        if extra is None or (error.name or "").startswith("fala"):
            raise
        raise _Failure(program, f"this needs an extra: {install_hint(extra)} ({error})") from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # nobody reads the output any more, so click exits quietly
        name = "" if error.filename is None else f"{error.filename}: "
        raise _Failure(program, f"{name}{error.strerror or error}") from error


@contextmanager
def dropped_interrupts_repeated() -> Iterator[None]:
    """Repeat a Ctrl-C that arrives in a callback whose errors Python drops.

    Every import ends with such a callback, and a command imports hundreds of modules.
    """
    hook = sys.unraisablehook

    def repeat(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            timer = threading.Timer(_REPEATED_AFTER, _thread.interrupt_main)
            timer.daemon = True  # so that it does not delay the exit of a command
            with suppress(RuntimeError):  # no thread can be started
                timer.start()
        else:
            hook(dropped)

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = hook


_REPEATED_AFTER = 0.05  # seconds, within which the callback ends
