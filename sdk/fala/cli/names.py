"""Options and arguments that take names: each name with its one line, in help and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

#: Names with a line on each.
About = Mapping[str, str]

#: What a replacement may do about writers' prompts.
PROMPTS: About = {
    "off": "leave them as they are",
    "auto": "make one by the user's labels, and take it if it is better",
}


class Described(click.Choice[str]):
    """A choice among a few names, each with its line."""

    def __init__(self, about: About) -> None:
        super().__init__(tuple(about))
        self._about = about

    def about(self) -> About:
        """Every name with its line."""
        return self._about

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """The names that begin so."""
        return _items(self._about, incomplete)


class Named(click.types.StringParamType):
    """Text that is, or may be, a name of a registry, which is asked only when it is needed.

    What is no such name is left to the command: it may be a file or a folder.
    """

    def __init__(
        self, about: Callable[[], About], *, several: bool = False, files: bool = False
    ) -> None:
        """Take names.

        Args:
            about: Every name with its line.
            several: Whether several may stand there, with commas between them.
            files: Whether it may be a file or a folder instead.
        """
        self._ask = about
        self._several, self._files = several, files

    def about(self) -> About:
        """Every name with its line."""
        return self._ask()

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """The names that begin so; the last one's, where several stand there."""
        try:
            about = self._ask()
        except ImportError:  # an extra that is not installed: nothing can be offered
            about = {}
        before, comma, last = incomplete.rpartition(",") if self._several else ("", "", incomplete)
        files = [CompletionItem(incomplete, type="file")] if self._files else []
        return _items(about, last, before + comma) + files


def listed(params: Sequence[click.Parameter]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A help's further sections: a title and rows, for the parameters that take the same names."""
    sections: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for param in params:
        if not isinstance(param.type, (Described, Named)):
            continue
        try:
            rows = tuple(param.type.about().items())
        except ImportError as error:
            rows = (("...", f"cannot be listed: {error}"),)
        spelled = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        sections.setdefault(rows, []).append(spelled)
    for rows, spelled_all in sections.items():
        yield " and ".join(spelled_all), list(rows)


def _items(about: About, incomplete: str, before: str = "") -> list[CompletionItem[Any]]:
    return [
        CompletionItem(f"{before}{name}", help=line)
        for name, line in about.items()
        if name.startswith(incomplete)
    ]
