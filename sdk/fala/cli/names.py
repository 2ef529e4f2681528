"""Options and arguments that take names, with a description of each for help and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

#: Names, with a description of each in one line.
About = Mapping[str, str]

#: The choices of ``--accept``: the condition for installing a release.
ACCEPT: About = {
    "always": "install it in any case",
    "better-than-old": "reject it if it is worse than the old personal model",
    "better-than-vendor": "reject it if labels prove it worse than the new model alone",
}


class Described(click.Choice[str]):
    """A choice among a few names, each with a description."""

    def __init__(self, about: About) -> None:
        super().__init__(tuple(about))
        self._about = about

    def about(self) -> About:
        """Return every name with its description."""
        return self._about

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ANN401
        """Return the message for a value that is not one of the names."""
        message = super().get_invalid_choice_message(value, ctx)
        return f"{message} {question}" if (question := _suggestion(value, self._about)) else message

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Return the names that begin with the incomplete word."""
        return _items(self._about, incomplete)


class Named(click.types.StringParamType):
    """Text that may be a name of a registry, which is loaded when needed.

    Any other text is left to the command: it may be a file or a folder. Several names are a tuple.
    """

    def __init__(
        self, about: Callable[[], About], *, several: bool = False, files: bool = False
    ) -> None:
        """Take names.

        Args:
            about: A function that returns every name with its description.
            several: Whether the text may be several names, with commas between them.
            files: Whether the text may be a file or a folder instead.
        """
        self._names = about
        self._several, self._files = several, files

    def about(self) -> About:
        """Return every name with its description."""
        return self._names()

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401
        """Return the name, or a tuple of the names between commas."""
        text = super().convert(value, param, ctx)
        if not self._several:
            return text
        return tuple(name for part in text.split(",") if (name := part.strip()))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Return the names that begin with the incomplete word, or with the last of several."""
        try:
            about = self._names()
        except ImportError:  # an extra is not installed
            about = {}
        before, comma, last = incomplete.rpartition(",") if self._several else ("", "", incomplete)
        files = [CompletionItem(incomplete, type="file")] if self._files else []
        return _items(about, last, before + comma) + files


def help_rows(params: Sequence[click.Parameter]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield sections of a help text, each with a title and rows; equal lists of names share one."""
    sections: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for param in params:
        if not isinstance(param.type, (Described, Named)):
            continue
        try:
            rows = tuple(param.type.about().items())
        except ImportError as error:
            rows = (("...", f"cannot be listed: {error}"),)
        option = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        sections.setdefault(rows, []).append(option)
    for rows, options in sections.items():
        yield " and ".join(options), list(rows)


def with_suggestion(ctx: click.Context, message: str) -> str:
    """Return an error's message, with the most similar name if it quotes a mistyped one.

    Args:
        ctx: The context of the failed command.
        message: The message of the error.
    """
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if isinstance(param.type, Named):
            values = value if isinstance(value, tuple) else (value,)
            for name in values:
                if isinstance(name, str) and repr(name) in message:
                    question = _suggestion(name, param.type.about())
                    return f"{message}. {question}" if question else message
    return message


def _suggestion(name: str, about: About) -> str:
    """Return the name most similar to a mistyped one, as a question."""
    matches = get_close_matches(str(name), [each for each in about if each != name], n=1)
    return f"Did you mean {matches[0]!r}?" if matches else ""


def _items(about: About, incomplete: str, before: str = "") -> list[CompletionItem[Any]]:
    return [
        CompletionItem(f"{before}{name}", help=line)
        for name, line in about.items()
        if name.startswith(incomplete)
    ]
