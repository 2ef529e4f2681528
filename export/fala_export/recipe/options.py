"""Declare settings once as dataclasses: for a command's options, a recipe's keys, and the docs.

A field's name, type, default and line under ``Attributes:`` become the option's. Anything that only
a command line needs is in the annotation::

    layers: Count | None = None                           # --layers, at least 1
    dimension: Annotated[Count | None, "--dim"] = None    # by another name
    lexical: Annotated[bool, "--lexical/--no-lexical"] = True
    user: Annotated[str | None, "COLUMN"] = None          # --user COLUMN in the help
    source: Annotated[str, Argument("DIR_OR_NAME")]       # an argument
    texts: tuple[File, ...]                               # may be given again
    data: Annotated[tuple[str, ...], NAMES]               # one text, which the type NAMES splits
    rating: tuple[float, float] | None = None             # --rating FLOAT FLOAT: two values
    from_: File                                           # --from: a keyword of Python
    training: TrainingSettings                            # all options of another dataclass
    export: Annotated[ExportOptions, Only("name")] # some of them

Modules of settings import neither NumPy nor PyTorch, because every ``--help`` loads them.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import click

from fala_export.base.errors import ExportError
from fala_export.recipe.refusals import refusal, refused_key

if TYPE_CHECKING:  # A common type of all dataclasses exists only for type checkers.
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class Number(click.FloatRange):
    """A range of finite numbers; click's own type accepts NaN, which no comparison rejects."""

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Convert and return the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


Count: TypeAlias = Annotated[int, click.IntRange(min=1)]
Seed: TypeAlias = Annotated[int, click.IntRange(0, 2**32 - 1)]
Share: TypeAlias = Annotated[float, Number(0, 1)]
Positive: TypeAlias = Annotated[float, Number(min=0, min_open=True)]
Cosine: TypeAlias = Annotated[float, Number(-1, 1)]
#: Bounds of AUC, or of RMSE in a rating's unit, whose range lies within a million on either side.
Gain: TypeAlias = Annotated[float, Number(-2e6, 2e6)]
File: TypeAlias = Annotated[Path, click.Path(path_type=Path, dir_okay=False)]
FolderPath: TypeAlias = Annotated[Path, click.Path(path_type=Path, file_okay=False)]
FileOrFolder: TypeAlias = Annotated[Path, click.Path(path_type=Path)]

_LINE = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


@dataclass(frozen=True)
class PositionalArgument:
    """A mark for a field that is an argument.

    Attributes:
        metavar: The argument's name in the usage line.
    """

    metavar: str


class Only(tuple[str, ...]):
    """A mark for a group of settings of which a command uses only some."""

    def __new__(cls, *names: str) -> Only:
        """Store the names of the fields."""
        return super().__new__(cls, names)


class Options(Generic[T]):
    """A dataclass of settings, as parameters of a command and as a table of a recipe.

    Args:
        settings: The dataclass.
        only: The fields to use; None uses all.
        defaults: Different defaults for some fields, by name.
    """

    def __init__(
        self,
        settings: type[T],
        only: Only | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings
        self._hints = get_type_hints(settings, include_extras=True)
        self._needed: list[str] = []
        self._parts: dict[str, click.Parameter | Options[Any]] = {}
        helps = described_option(settings)
        for field in dataclasses.fields(settings):
            name = field.name
            if only is not None and name not in only:
                continue
            kind, notes = _unwrap(self._hints[name])
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                part = next((note for note in notes if isinstance(note, Only)), None)
                self._parts[name] = Options(kind, part)
                continue
            default = (defaults or {}).get(name, field.default)
            if default is field.default_factory is MISSING:
                self._needed.append(name)
            self._parts[name] = _parameter(field, kind, notes, helps[name], default)

    def parameters(self) -> Iterator[click.Parameter]:
        """Yield the options and arguments, in the order of the fields."""
        for part in self._parts.values():
            if isinstance(part, Options):
                yield from part.parameters()
            else:
                yield part

    def build(self, values: Mapping[str, Any]) -> T:
        """Build the settings of a command line.

        Args:
            values: The values by the parameters' names, as click passes them.

        Raises:
            click.UsageError: A required option is missing.
        """
        fields = {
            name: part.build(values) if isinstance(part, Options) else values[str(part.name)]
            for name, part in self._parts.items()
        }
        for name in self._needed:
            if fields[name] is None:
                flag = cast("click.Parameter", self._parts[name]).opts[0]
                raise click.UsageError(f"Missing option '{flag}'.")
        return self._settings(**fields)

    def names(self) -> list[str]:
        """Return the keys of a table, including those of its groups."""
        names = []
        for name, part in self._parts.items():
            names += part.names() if isinstance(part, Options) else [_key(name)]
        return names

    def read(self, table: Mapping[str, Any], title: str, folder: Path | None = None) -> T:
        """Build the settings of a recipe's table.

        Args:
            table: The values by key.
            title: The table's title, for messages.
            folder: The folder from which relative paths are resolved; None leaves them unchanged.

        Raises:
            ExportError: A key is missing or unknown, or a value is wrong.
        """
        if unknown_keys := sorted(table.keys() - set(self.names())):
            raise ExportError(
                f"[{title}] has no key {unknown_keys[0]}; its keys are {', '.join(self.names())}"
            )

        import msgspec  # msgspec belongs to an extra, and only recipes need it.

        def path(kind: type, value: object) -> Path:
            if kind is not Path or not isinstance(value, str):
                raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
            return Path(value) if folder is None or value == "-" else folder / value

        try:
            settings = msgspec.convert(self._grouped(table), self._settings, dec_hook=path)
        except msgspec.ValidationError as error:
            key = _key(refused_key(str(error)))
            where = f"{title}.{key}:" if key in self.names() else f"[{title}]"
            raise ExportError(f"{where} {refusal(str(error), self._choices(key))}") from error
        self._check(settings, title)
        return settings

    def _choices(self, key: str) -> Sequence[str]:
        """Return the values from which an option is chosen; empty if there is no such list."""
        for name, part in self._parts.items():
            if isinstance(part, Options) and key in part.names():
                return part._choices(key)
            if _key(name) == key and isinstance(part, click.Parameter):
                return part.type.choices if isinstance(part.type, click.Choice) else ()
        return ()

    def _check(self, settings: T, title: str) -> None:
        """Check that numbers are within the ranges of their options."""
        for name, part in self._parts.items():
            value = getattr(settings, name)
            if isinstance(part, Options):
                part._check(value, title)
                continue
            items = value if isinstance(value, tuple) else (value,)
            try:
                for item in (item for item in items if item is not None):
                    part.type.convert(item, None, None)
            except click.BadParameter as error:
                raise ExportError(f"{title}.{_key(name)}: {error}") from error

    def _grouped(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return a table's values by field, with those of groups by group."""
        return {
            name: part._grouped(table) if isinstance(part, Options) else table[_key(name)]
            for name, part in self._parts.items()
            if isinstance(part, Options) or _key(name) in table
        }


def _key(name: str) -> str:
    """Return a field's name without the underscore that avoids a Python keyword."""
    return name.removesuffix("_")


def _parameter(
    field: dataclasses.Field[Any],
    kind: Any,  # noqa: ANN401
    notes: list[Any],
    help_text: str,
    default: Any,  # noqa: ANN401
) -> click.Parameter:
    splits = any(isinstance(note, click.ParamType) for note in notes)
    parts = get_args(kind) if get_origin(kind) is tuple and not splits else ()
    several, values = Ellipsis in parts, 1
    if several:
        kind, item_notes = _unwrap(parts[0])
        notes = [*notes, *item_notes]
    elif parts:
        kind, values = parts[0], len(parts)
    declared = next((note for note in notes if isinstance(note, click.ParamType)), kind)
    if get_origin(declared) is Literal:
        declared = click.Choice(get_args(declared))
    needed = default is field.default_factory is MISSING
    for note in notes:
        if isinstance(note, PositionalArgument):
            return click.Argument([field.name], type=declared, metavar=note.metavar)
    words = [note for note in notes if isinstance(note, str)]
    names = [word for word in words if word.startswith("-")]
    if several or needed:
        default = None
    elif splits and isinstance(default, tuple):
        default = ",".join(default)
    return click.Option(
        names or [f"--{_key(field.name).replace('_', '-')}"],
        type=None if kind is bool else declared,
        is_flag=True if kind is bool else None,
        multiple=several,
        nargs=values,
        metavar=next((word for word in words if word not in names), None),
        required=needed,
        default=default,
        show_default=default is not False and default not in (None, ""),
        help=help_text,
    )


def described_option(settings: type) -> dict[str, str]:
    """Return the lines under ``Attributes:`` of a dataclass and its bases, by field."""
    docs = [inspect.cleandoc(part.__doc__ or "") for part in reversed(settings.__mro__)]
    lines = "\n".join(doc.partition("Attributes:\n")[2] for doc in docs)
    return {
        match[1]: " ".join(match[2].split()).replace("``", "") for match in _LINE.finditer(lines)
    }


def _unwrap(hint: Any) -> tuple[Any, list[Any]]:  # noqa: ANN401
    """Return a type without annotations and None, and its annotations."""
    notes: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *annotations = get_args(hint)
            notes += annotations
        elif get_origin(hint) in (Union, UnionType):
            (hint,) = (inner for inner in get_args(hint) if inner is not NoneType)
        else:
            return hint, notes
