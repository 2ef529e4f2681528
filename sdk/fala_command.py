"""The command ``fala``: all commands of the project under one name, each imported when called.

The module lies beside the package, so that help and completion import none of the commands.
"""

from __future__ import annotations

import importlib
from typing import IO, Any, NamedTuple

import click
from click.shell_completion import get_completion_class


class Part(NamedTuple):
    """A command under ``fala``.

    Attributes:
        where: Its module and its name there.
        about: Its purpose in one line.
        extra: The extra that it needs; "" is the base install.
        program: Its name as a program of its own; "" if it is none.
    """

    where: str
    about: str
    extra: str = ""
    program: str = ""


#: The commands by name, in the order of the help.
PARTS = {
    "demo": Part(
        "fala.playground.page.command:command",
        "See a personal model survive a new backbone: a page in your browser.",
        extra="demo",
    ),
    "replace": Part(
        "fala.playground.command:command",
        "Replace the backbone under personal models, and see what survives.",
        program="fala-replace",
    ),
    "device": Part(
        "fala.cli.device:command", "Look after a device's folder.", program="fala-device"
    ),
    "export": Part(
        "fala_export.cli:main", "Turn models into bundles for FaLA's devices.",
        extra="export", program="fala-export",
    ),
    "sim": Part(
        "fala_sim.cli:main", "The laboratory of FaLA: real users' data and simulated devices.",
        extra="sim", program="fala-sim",
    ),
}  # fmt: skip


class _Failure(click.ClickException):
    exit_code = 1  # as in fala.cli.commands; _Interruption, too

    def __init__(self, message: str) -> None:
        super().__init__(f"fala: {message}")

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        click.echo(self.message, file=file, err=True)


class _Interruption(_Failure):
    exit_code = 130

    def __init__(self) -> None:
        super().__init__("interrupted")


class _Umbrella(click.Group):
    """Lists the commands without an import, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the help."""
        return [*PARTS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        part = PARTS.get(cmd_name)
        if part is None:
            return super().get_command(ctx, cmd_name)
        try:
            return _load(part)
        except ImportError as error:
            if ctx.resilient_parsing:  # completion: nothing to offer
                return None
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise _Interruption() from error
            how = f"pip install 'fala-sdk[{part.extra}]'" if part.extra else "reinstall fala-sdk"
            raise _Failure(f"'fala {cmd_name}' is not installed: {how} ({error})") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every command with its line."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._descriptions().items()))

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The commands and options that begin with the incomplete word."""
        item = click.shell_completion.CompletionItem
        return [
            *(
                item(name, help=line)
                for name, line in self._descriptions().items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def _descriptions(self) -> dict[str, str]:
        return {
            **{name: part.about for name, part in PARTS.items()},
            **{name: command.get_short_help_str(200) for name, command in self.commands.items()},
        }

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as error:  # while a command was imported
            raise _Interruption() from error


@click.group(cls=_Umbrella, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fala-sdk")
def command() -> None:
    """Keep a user's personal model when the backbone under it is replaced."""


_SHELLS = ("bash", "zsh", "fish")

# \b keeps click from rewrapping the lines.
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
    shell_class = get_completion_class(shell)
    if shell_class is None:
        raise _Failure(f"no completion for {shell}; one of {', '.join(_SHELLS)}")
    for program in ("fala", *(part.program for part in PARTS.values() if part.program)):
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(shell_class(command, {}, program, variable).source())


def main() -> None:
    """Run the command."""
    command()


def _load(part: Part) -> click.Command:
    module, _, name = part.where.partition(":")
    loaded: click.Command = getattr(importlib.import_module(module), name)
    return loaded
