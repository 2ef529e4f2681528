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
    export: Annotated[ExportOptions, Only("name")]        # some of them
    check: CheckSettings | None = None                    # a recipe's own table, [check]

Modules of settings import neither NumPy nor PyTorch, because every ``--help`` loads them.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Mapping
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
    get_args,
    get_origin,
    get_type_hints,
)

import click

from fala_export.base.errors import ExportError
from fala_export.recipe.refusals import refusal

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
        self._parts: dict[str, click.Parameter | Options[Any]] = {}
        self._hints = get_type_hints(settings, include_extras=True)
        helps = described_option(settings)
        for field in dataclasses.fields(settings):
            if only is not None and field.name not in only:
                continue
            kind, notes = _unwrap(self._hints[field.name])
            default = (defaults or {}).get(field.name, field.default)
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                group = Options(
                    kind, next((note for note in notes if isinstance(note, Only)), None)
                )
                if default is MISSING:
                    self._parts[field.name] = group
                    continue
                kind = _Table(field.name.replace("_", "-"), group)
            self._parts[field.name] = _parameter(
                field.name, kind, notes, helps[field.name], default
            )

    def parameters(self) -> Iterator[click.Parameter]:
        """Yield the options and arguments, in the order of the fields."""
        return (option for _, option in self._typed())

    def _typed(self) -> Iterator[tuple[Any, click.Parameter]]:
        """Yield the type of each field, also of groups, and its option."""
        for name, part in self._parts.items():
            if isinstance(part, Options):
                yield from part._typed()
            else:
                yield self._hints[name], part

    def build(self, values: Mapping[str, Any]) -> T:
        """Build the settings from the values by field, also those of groups.

        Args:
            values: The values; a field without a value has its default.
        """
        fields = {
            name: part.build(values) if isinstance(part, Options) else values[name]
            for name, part in self._parts.items()
            if isinstance(part, Options) or name in values
        }
        return self._settings(**fields)

    def read(self, table: Mapping[str, Any], title: str = "", folder: Path = Path()) -> T:
        """Build the settings of a recipe, or of one of its tables.

        Args:
            table: The values by key, as TOML has them.
            title: The table's title, for messages; empty for the whole recipe.
            folder: The folder from which relative paths are resolved.

        Raises:
            ExportError: A key is missing or unknown, or a value is wrong.
        """
        options = {_key(option): (kind, option) for kind, option in self._typed()}
        where = f"[{title}]" if title else "the recipe"
        if unknown_keys := sorted(table.keys() - options.keys()):
            known = (
                f"; its keys are {', '.join(options)}" if options else ", because it has no keys"
            )
            raise ExportError(f"{where} has no key {unknown_keys[0]:.60}{known}")
        values = {}
        for key, (kind, option) in options.items():
            if key in table:
                try:
                    values[str(option.name)] = _value_of(kind, option.type, table[key], folder)
                except (ValueError, click.BadParameter) as error:
                    raise ExportError(f"{title}.{key}: {error}".removeprefix(".")) from error
            elif option.required:
                raise ExportError(f"{where} needs {key}")
        return self.build(values)


class _Table(click.ParamType):
    """The type of a recipe's key that is a table.

    Args:
        title: The table's title.
        options: The table's keys.
    """

    name = "table"

    def __init__(self, title: str, options: Options[Any]) -> None:
        self.title, self.options = title, options


def _key(option: click.Parameter) -> str:
    """Return an option's key in a recipe: the title of its table, or the name of its field.

    A field's name has an underscore at its end if it would be a keyword of Python.
    """
    kind = option.type
    return kind.title if isinstance(kind, _Table) else str(option.name).removesuffix("_")


def _value_of(kind: object, option: click.ParamType, value: object, folder: Path) -> object:
    """Return the value of a recipe's key, as its option on a command line would set it.

    Raises:
        ExportError: A table has a wrong key or value.
        ValueError: The value has another type, or is not among an option's names.
        click.BadParameter: A number is not in the option's range, or a path cannot be read.
    """
    import msgspec  # msgspec belongs to an extra, and only recipes need it.

    def path(_: type, text: object) -> Path:
        if not isinstance(text, str):
            raise ValueError(f"Expected `str`, got `{type(text).__name__}`")
        is_dash = text == "-" and isinstance(option, click.Path) and option.allow_dash
        return Path(text) if is_dash else folder / text

    try:
        if isinstance(option, _Table):
            return option.options.read(msgspec.convert(value, dict), option.title, folder)
        converted = msgspec.convert(value, kind, dec_hook=path)
    except msgspec.ValidationError as error:
        choices = option.choices if isinstance(option, click.Choice) else ()
        raise ValueError(refusal(str(error), choices)) from error
    for item in converted if isinstance(converted, tuple) else (converted,):
        option.convert(item, None, None)
    return converted


def _parameter(
    name: str,
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
    for note in notes:
        if isinstance(note, PositionalArgument):
            return click.Argument([name], type=declared, metavar=note.metavar)
    words = [note for note in notes if isinstance(note, str)]
    flags = [word for word in words if word.startswith("-")]
    needed = default is MISSING
    if splits and isinstance(default, tuple):
        default = ",".join(default)
    return click.Option(
        [name, *(flags or [f"--{name.removesuffix('_').replace('_', '-')}"])],
        type=None if kind is bool else declared,
        is_flag=True if kind is bool else None,
        multiple=several,
        nargs=values,
        metavar=next((word for word in words if word not in flags), None),
        required=needed,
        show_default=default is not False and default not in (MISSING, None, "", ()),
        help=help_text,
        **({} if several or needed else {"default": default}),
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
