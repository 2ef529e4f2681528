"""The options of a run, and its work folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of a run; each family sets the fields that it reads.

    Attributes:
        results: The run's folder: records, tables, and a work folder that may be deleted.
        data: Data sets.
        data_dir: Their folder; None uses the default.
        users: Test users of each data set.
        seeds: Number of divisions of the data, or of trainings. Methods that train a transformer
            run on the first division only; where people take turns, on each.
        old: The backbone that devices have.
        new: The new backbone, or the one to train; after ``tuned:``, first trained on each data
            set's public rows.
        methods: The methods; empty for all.
        method: Names of methods that files added, to run beside ``methods``.
    """

    results: Path
    data: tuple[str, ...] = ()
    data_dir: Path | None = None
    users: int = 1
    seeds: int = 1
    old: str = ""
    new: str = ""
    methods: tuple[str, ...] = ()
    method: Sequence[str] = ()

    def work(self) -> Path:
        """The folder of a run's intermediate files; it may be deleted."""
        # Absolute: its files contain paths, and the run may be resumed from another folder.
        work = self.results.absolute() / "work"
        work.mkdir(parents=True, exist_ok=True)
        (work / ".gitignore").write_text("*\n", encoding="utf-8")
        return work
