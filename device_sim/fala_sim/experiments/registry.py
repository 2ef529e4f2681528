"""All tables and figures by name, for the command line and its help.

Each of them is a function of the records' frame, which its decorator registers. The functions are
found in ``fala_sim.experiments``: in a module there, or in ``tables`` and ``plots`` of a package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from fala import DataError
from fala_export.recipe.options import Options
from fala_sim.data.found import found
from fala_sim.experiments.plan import Family
from fala_sim.records.frame import read_frame
from fala_sim.records.store import RecordKind

if TYPE_CHECKING:
    import click
    import pandas as pd
    from _typeshed import DataclassInstance

    from fala_sim.report.plot import Plot
    from fala_sim.report.table import Table

Shown = TypeVar("Shown")
#: Function that makes a table or a figure from the records' frame, and perhaps from options.
Make: TypeAlias = "Callable[..., Shown]"


@dataclass(frozen=True)
class Registered(Generic[Shown]):
    """A registered table or figure.

    Attributes:
        what: The words before its name on the command line: ``"table"`` or ``"figure"``; for a
            study's table, they include the name of the study.
        name: Name on the command line.
        about: Description in one line.
        make: Function that makes it from the records' frame.
        needs: Kinds of record that it needs.
        reads: Optional kinds of record.
        family: Family that makes the records; None for the experiments on people.
        options: Dataclass whose fields are options and arguments of ``make``; None for none.
    """

    what: str
    name: str
    about: str
    make: Make[Shown]
    needs: tuple[RecordKind, ...]
    reads: tuple[RecordKind, ...] = ()
    family: Family | None = None
    options: type[DataclassInstance] | None = None

    def parameters(self) -> list[click.Parameter]:
        """Return its own options on the command line."""
        return [] if self.options is None else list(Options(self.options).parameters())

    def of(self, results: Path, **options: Any) -> Shown:  # noqa: ANN401
        """Make it from a folder's records, reading only the kinds that it needs.

        Args:
            results: The folder.
            options: Values of ``options``.

        Raises:
            DataError: Records are missing, or one cannot be read.
        """
        return self(read_frame(results, *self.needs, *self.reads), **options)

    def __call__(self, records: pd.DataFrame, **options: Any) -> Shown:  # noqa: ANN401
        """Make it from records.

        Args:
            records: The frame.
            options: Values of ``options``.

        Raises:
            DataError: Records are missing; the error says which, and how to make them.
        """
        if missing := self.lacks(records):
            raise DataError(
                f"no records of kind {missing}, which {self} needs; "
                f"`fala-sim {self} --run` makes them, or name the folder that has them with "
                "--results"
            )
        return self.make(records, **options)

    def __str__(self) -> str:
        return f"{self.what} {self.name}"

    def lacks(self, records: pd.DataFrame) -> str:
        """Return the needed kinds without a record, in words."""
        recorded = set(records["kind"])
        return " or ".join(repr(kind) for kind in self.needs if kind not in recorded)


TABLES: dict[str, Registered[Table]] = {}
#: The tables of each study.
STUDIES: dict[str, dict[str, Registered[Table]]] = {}
FIGURES: dict[str, Registered[list[Plot]]] = {}


def table(
    name: str,
    title: str,
    *needs: RecordKind,
    caption: str = "",
    reads: tuple[RecordKind, ...] = (),
    family: Family | None = None,
    options: type[DataclassInstance] | None = None,
    study: str = "",
) -> Callable[[Make[Table]], Make[Table]]:
    """Register a function as a table; its docstring's first line is its help.

    Args:
        name: Name on the command line; for a table of the paper, its number.
        title: Title above the table.
        needs: Kinds of record that it needs.
        caption: What it shows, and how it was measured.
        reads: Optional kinds of record.
        family: Family that makes the records; None for the experiments on people.
        options: Dataclass of options, whose fields are arguments of the function.
        study: Name of the study to which it belongs, if any.
    """
    what = f"study {study}" if study else "table"
    entries = TABLES if not study else STUDIES.setdefault(study, {})

    def register(make: Make[Table]) -> Make[Table]:
        def titled(records: pd.DataFrame, **values: Any) -> Table:  # noqa: ANN401
            made = make(records, **values)
            file = f"table-{name}" if name.isdigit() else name
            return replace(made, name=file, title=made.title or title, about=caption)

        about = _about(make, title)
        entries[name] = Registered(what, name, about, titled, needs, reads, family, options)
        return make

    return register


def figure(
    name: str, *needs: RecordKind, family: Family | None = None
) -> Callable[[Make[list[Plot]]], Make[list[Plot]]]:
    """Register a function as a figure, of one plot or several, like ``table``."""

    def register(make: Make[list[Plot]]) -> Make[list[Plot]]:
        FIGURES[name] = Registered("figure", name, _about(make, name), make, needs, (), family)
        return make

    return register


def _about(make: Callable[..., object], title: str) -> str:
    return (make.__doc__ or title).splitlines()[0].rstrip(".")


def tables() -> dict[str, Registered[Table]]:
    """Return all tables, by name."""
    _find("tables")
    return dict(sorted(TABLES.items()))


def figures() -> dict[str, Registered[list[Plot]]]:
    """Return all figures, by name."""
    _find("plots")
    return dict(sorted(FIGURES.items()))


def _find(part: str) -> None:
    """Import the modules that register tables or figures."""
    for each in ("", part):
        list(found("fala_sim.experiments", each))


def shown_entries(
    entries: Iterable[Registered[Shown]], records: pd.DataFrame
) -> tuple[list[Shown], list[str]]:
    """Return the entries that have records, and for each other entry a line that says why not."""
    results: list[Shown] = []
    reasons: list[str] = []
    lacking: dict[str, list[str]] = {}
    for entry in entries:
        if kinds := entry.lacks(records):
            lacking.setdefault(kinds, []).append(str(entry))
            continue
        try:
            results.append(entry(records))
        except DataError as error:
            reasons.append(f"{entry}: {error}")
    lines = [f"no records of kind {kinds} ({', '.join(names)})" for kinds, names in lacking.items()]
    return results, reasons + lines
