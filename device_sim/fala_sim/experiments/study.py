"""Studies: experiments that answer one question once, each complete in a folder of its own.

They are in ``device_sim/studies``, beside the benchmarks; an installed distribution has none. A
study is a package that is found in that folder. It has ``__init__.py``, whose first line is its
question; ``study.py`` with its ``STUDY``; ``tables.py``, whose functions ``STUDY.table`` registers;
its records in ``results/``; and ``README.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fala_sim.experiments.plan import Family
from fala_sim.experiments.registry import STUDIES, Make, Registered, table

if TYPE_CHECKING:
    from fala_sim.report.table import Table

#: The studies, with one folder per study.
FOLDER = Path(__file__).resolve().parents[2] / "studies"


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        name: Name of its folder.
        family: Its options on the command line, and the function that makes the records.
    """

    name: str
    family: Family

    @property
    def results(self) -> Path:
        """The folder of its recorded results."""
        return FOLDER / self.name / "results"

    @property
    def table(self) -> Callable[..., Callable[[Make[Table]], Make[Table]]]:
        """A decorator that registers a function as a table of the study; see ``registry.table``."""
        return partial(table, family=self.family, study=self.name)

    def tables(self) -> Mapping[str, Registered[Table]]:
        """Return all tables."""
        import_module(f"{FOLDER.name}.{self.name}.tables")
        return STUDIES[self.name]


def studies() -> dict[str, str]:
    """Return the question of each study, by name."""
    names = sorted(file.parent.name for file in FOLDER.glob("*/study.py"))
    docstrings = (import_module(f"{FOLDER.name}.{name}").__doc__ or "" for name in names)
    return {name: text.partition("\n")[0] for name, text in zip(names, docstrings, strict=True)}


def find_study(name: str) -> Study:
    """Return the study with this name, which must be one of ``studies``."""
    study: Study = import_module(f"{FOLDER.name}.{name}.study").STUDY
    return study
