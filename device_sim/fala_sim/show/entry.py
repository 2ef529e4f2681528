"""What a registry says of one table or figure: its name, what it needs, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from fala import DataError
from fala_sim.records import Kind
from fala_sim.show.tables.records import Records

Made = TypeVar("Made")

#: Options of ``--run`` for what is of benchmarks, which have no people.
BENCHMARKS: Mapping[str, Any] = {"data": ("cola", "mrpc"), "seeds": 3}

#: Of what is of writers: those who have a prompt.
WRITERS: Mapping[str, Any] = {"data": ("md-agreement",), "users": 12}

#: The report's parts, by anchor, in their order.
SECTIONS = {
    "overview": "Overview",
    "quality": "Quality",
    "cost": "Cost",
    "budgets": "Our own method: budgets and verdicts",
    "curves": "Learning curves and cold users",
    "ablations": "The paper's ablations",
    "chains": "Chains of replacements",
    "devices": "Classes of real devices",
    "search": "How settings were chosen",
    "adapters": "Many tasks on one backbone",
    "prompts": "Writers' prompts",
}


@dataclass(frozen=True)
class Entry(Generic[Made]):
    """A table or a figure as its registry lists it.

    Attributes:
        what: ``"table"`` or ``"figure"``.
        name: On the command line.
        section: The part of the report that it stands in.
        about: One line.
        make: Makes it from records, which it only reads.
        needs: Kinds of record that it is made from.
        defaults: Options of ``--run`` that are others here where nobody says them.
    """

    what: Literal["table", "figure"]
    name: str
    section: str
    about: str
    make: Callable[[Records], Made]
    needs: tuple[Kind, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, records: Records) -> Made:
        """Make it.

        Raises:
            DataError: If records are missing; says which, and what makes them.
        """
        if missing := self.lacks(records):
            raise DataError(
                f"no records of kind {' or '.join(map(repr, missing))}, which {self} needs; "
                f"`fala-sim {self} --run` makes them, or name the folder that has them with "
                "--results"
            )
        return self.make(records)

    def __str__(self) -> str:
        return f"{self.what} {self.name}"

    def lacks(self, records: Records) -> tuple[Kind, ...]:
        """The kinds that it needs and of which there is no record."""
        return tuple(kind for kind in self.needs if not records.of(kind))


def of_section(registry: Mapping[str, Entry[Made]], section: str) -> list[Entry[Made]]:
    """What a registry has for a part of the report."""
    return [entry for entry in registry.values() if entry.section == section]


def made(entries: Iterable[Entry[Made]], records: Records) -> tuple[list[Made], list[str]]:
    """Whatever there are records for, and a line for what there is not, saying why."""
    found: list[Made] = []
    reasons: list[str] = []
    lacking: dict[str, list[str]] = {}
    for entry in entries:
        if kinds := entry.lacks(records):
            lacking.setdefault(" or ".join(map(repr, kinds)), []).append(str(entry))
            continue
        one, reason = _tried(entry, records)
        found += one
        reasons += reason
    lines = [f"no records of kind {kinds} ({', '.join(names)})" for kinds, names in lacking.items()]
    return found, reasons + lines


def _tried(entry: Entry[Made], records: Records) -> tuple[list[Made], list[str]]:
    try:
        return [entry.make(records)], []
    except DataError as error:
        return [], [f"{entry}: {error}"]
