"""The command ``fala``: all commands of the project under one name, each imported when called.

The commands that are also separate programs start here, so Ctrl-C prints no traceback while they
are imported. The module is beside the package, so that help and completion import none of them.
"""

from __future__ import annotations

import importlib
import io
import sys
from contextlib import suppress
from functools import partial

try:
    import locale  # noqa: F401 - click imports it when a command is made
    from typing import NoReturn

    import click
    from click.shell_completion import BashComplete, FishComplete, ZshComplete
except (KeyboardInterrupt, ImportError) as error:  # everything else is imported by Part.load
    # Extension modules raise ImportError when Ctrl-C interrupts their import.
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(f"fala: its commands need click: pip install click ({error})")

MISTAKE, INTERRUPTED = 1, 130  # as in fala.cli.commands


class Part(click.Command):
    """A command under ``fala``, which stands for the real command in help and completion.

    Attributes:
        where: The module of the real command, and its name there.
        extra: The extra that the command needs; empty if the base install is enough.
        program: The command's name as a separate program; empty if it is none.
    """

    def __init__(
        self, name: str, where: str, about: str, *, extra: str = "", program: str = ""
    ) -> None:
        super().__init__(name, short_help=about)
        self.where, self.extra, self.program = where, extra, program

    def load(self) -> click.Command:
        """Import the real command.

        Raises:
            ImportError: If the command is not installed.
        """
        module, _, name = self.where.partition(":")
        from fala.cli.commands import dropped_interrupts_repeated

        with dropped_interrupts_repeated():
            loaded: click.Command = getattr(importlib.import_module(module), name)
        return loaded

    def give_up(self, called: str, error: BaseException) -> NoReturn:
        """Exit, because the import of the real command failed, or was interrupted by Ctrl-C.

        Args:
            called: How the user calls it, which the message names; the first word is the program.
            error: The error of ``load``.
        """
        program, _, _ = called.partition(" ")
        # Extension modules raise ImportError when Ctrl-C interrupts their import.
        if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
            click.echo(f"{program}: interrupted", err=True)
            sys.exit(INTERRUPTED)
        message = f"'{called}' is not installed: {self._remedy()} ({error})"
        click.echo(f"{program}: {message}", err=True)
        sys.exit(MISTAKE)

    def _remedy(self) -> str:
        """Return what installs the command: its extra, or all of FaLA if ``fala`` is broken."""
        if self.extra:
            with suppress(ImportError):
                from fala.base.errors import install_hint

                return install_hint(self.extra)
        return "reinstall fala-sdk"


#: The commands, in the order of the help.
PARTS = (
    Part(
        "demo", "fala_sim.playground.page.command:command",
        "See a personal model carried over to a new release: a page in your browser.", extra="demo",
    ),
    Part(
        "replace", "fala_sim.playground.command:command",
        "Replace the backbone under personal models, and compare what is carried over.",
        program="fala-replace",
    ),
    Part(
        "device", "fala.cli.device:command", "Look after a device's folder.",
        program="fala-device",
    ),
    Part(
        "export", "fala_export.cli:main", "Turn models into bundles for FaLA's devices.",
        extra="export", program="fala-export",
    ),
    Part(
        "sim", "fala_sim.cli:main",
        "Run the benchmarks of FaLA: real users' data and simulated devices.",
        extra="sim", program="fala-sim",
    ),
)  # fmt: skip


class _Umbrella(click.Group):
    """Imports a command when it is called, and none to list the commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands, in the order of the help."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the command that is called."""
        name, command, rest = super().resolve_command(ctx, args)
        if not isinstance(command, Part):
            return name, command, rest
        try:
            return name, command.load(), rest
        except (KeyboardInterrupt, ImportError) as error:
            if ctx.resilient_parsing:  # completion has nothing to offer
                return None, None, rest
            command.give_up(f"fala {name}", error)


@click.group(
    cls=_Umbrella, commands=PARTS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="fala-sdk")
def command() -> None:
    """Keep a user's personal model when the backbone under it is replaced."""


_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}

# The \b keeps click from rewrapping the lines.
_SHELL_LINES = """\b
To install it:
  bash  eval "$(fala completion bash)"   in ~/.bashrc
  zsh   eval "$(fala completion zsh)"    in ~/.zshrc
  fish  fala completion fish | source    in ~/.config/fish/config.fish
"""


@command.command("completion", epilog=_SHELL_LINES)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the code that makes a shell complete commands and names."""
    for program in ("fala", *(part.program for part in PARTS if part.program)):
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(_SHELLS[shell](command, {}, program, variable).source())


def main() -> None:
    """Run the command."""
    _replace_what_no_terminal_shows()
    command()


def _replace_what_no_terminal_shows() -> None:
    """Print ``?`` for a character that the terminal's encoding lacks.

    Labels, users and file names can be in any script, and a result that took minutes must not be
    lost because an old code page cannot show one of them.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _run(program: str) -> None:
    _replace_what_no_terminal_shows()
    (part,) = (part for part in PARTS if part.program == program)
    try:
        loaded = part.load()
    except (KeyboardInterrupt, ImportError) as error:
        part.give_up(program, error)
    loaded()


replace = partial(_run, "fala-replace")
device = partial(_run, "fala-device")
export = partial(_run, "fala-export")
sim = partial(_run, "fala-sim")
