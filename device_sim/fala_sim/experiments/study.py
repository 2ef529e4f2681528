"""Studies: experiments that answer one question once, each whole in a folder of its own.

They stand in ``device_sim/studies``, beside the laboratory; an installed distribution has none. A
study is a package that is found by being there. It has ``__init__.py``, whose first line is its
question; ``study.py`` with its ``STUDY``; ``tables.py``, whose functions ``STUDY.table`` registers;
its records in ``results/``; and ``README.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fala_sim.experiments.plan import Family
from fala_sim.experiments.registry import Make, Registered, entry_of
from fala_sim.records.store import RecordKind

if TYPE_CHECKING:
    from fala_sim.report.table import Table

#: The studies, a folder each.
FOLDER = Path(__file__).resolve().parents[2] / "studies"


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        name: The name of its folder.
        family: Its options on the command line, and what makes the records.
        entries: The registered tables by name; ``tables`` has all of them.
    """

    name: str
    family: Family
    entries: dict[str, Registered[Table]] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        """The folder of its recorded results."""
        return FOLDER / self.name / "results"

    def table(
        self,
        name: str,
        title: str,
        *needs: RecordKind,
        caption: str = "",
        reads: tuple[RecordKind, ...] = (),
    ) -> Callable[[Make[Table]], Make[Table]]:
        """Register a function as a table of the study, as ``report.registry.table`` does.

        Args:
            name: On the command line.
            title: Above the table.
            needs: Kinds of record that it needs.
            caption: What it shows, and how it was measured.
            reads: Optional kinds of record.
        """

        def register(make: Make[Table]) -> Make[Table]:
            what = f"study {self.name}"
            self.entries[name] = entry_of(
                what, name, title, caption, make, needs, reads, self.family
            )
            return make

        return register

    def tables(self) -> Mapping[str, Registered[Table]]:
        """All tables."""
        import_module(f"{FOLDER.name}.{self.name}.tables")
        return self.entries


def studies() -> dict[str, str]:
    """The question of each study, by name."""
    names = sorted(file.parent.name for file in FOLDER.glob("*/study.py"))
    docstrings = (import_module(f"{FOLDER.name}.{name}").__doc__ or "" for name in names)
    return {name: text.partition("\n")[0] for name, text in zip(names, docstrings, strict=True)}


def find_study(name: str) -> Study:
    """A study by name, one of ``studies``."""
    study: Study = import_module(f"{FOLDER.name}.{name}.study").STUDY
    return study
