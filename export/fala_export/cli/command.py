"""Build a command from a dataclass of settings and a function from these to a summary."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click

from fala.base.errors import printable
from fala.cli import Command
from fala_export.base.checks import check_settings
from fala_export.base.errors import ExportError
from fala_export.cli.summary import text_of
from fala_export.recipe.options import Options, T

Summary: TypeAlias = Mapping[str, Any]


def command(
    settings: type[T], to_text: Callable[[Summary], str] = text_of, name: str | None = None
) -> Callable[[Callable[[T], Summary]], Command]:
    """Make a function of settings a command, whose help is the function's docstring.

    Args:
        settings: A dataclass; see ``fala_export.recipe.options``.
        to_text: A function that formats the summary; ``--json`` prints it unformatted.
        name: The command's name; None uses the function's name.
    """
    options = Options(settings)

    def decorate(function: Callable[[T], Summary]) -> Command:
        def run(as_json: bool, **values: Any) -> Summary:  # noqa: ANN401
            built = options.build(values)
            check_settings(built)
            try:
                summary = function(built)
            except KeyboardInterrupt as error:
                if "work" not in values:
                    raise
                option = " with --resume" if "resume" in values else ""
                raise ExportError(
                    f"interrupted; run the same command{option} to continue"
                ) from error
            # A name in a file may contain control characters, and JSON does not escape DEL.
            if as_json:
                text = json.dumps(summary, indent=2).replace("\x7f", "\\u007f")
            else:
                text = "\n".join(map(printable, to_text(summary).split("\n")))
            click.echo(text)
            return summary

        as_json = click.Option(
            ["--json", "as_json"], is_flag=True, help="Print the summary as JSON."
        )
        return Command(
            name or function.__name__.replace("_", "-"),
            callback=run,
            params=[*options.parameters(), as_json],
            help=inspect.getdoc(function),
        )

    return decorate


def name_of(source: str) -> str:
    """Return a model's default name: of its folder, of its file, or on the hub.

    Args:
        source: The source as on the command line; a folder may be ``.`` or ``..``.
    """
    path = Path(source)
    if path.is_file():
        return path.stem
    # A link that was named on purpose keeps its own name.
    if path.is_dir() and path.name in ("", ".."):
        path = path.resolve()
    return path.name
