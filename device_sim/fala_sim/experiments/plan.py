"""What is asked of a run, and where it works."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is asked of a run; a family's options have the fields that it reads.

    Attributes:
        results: The run's folder: records, tables, and a work folder that may be deleted.
        data: Data sets.
        data_dir: Where they are; None looks in the usual places.
        users: Test users of each data set; of prompts the writers who have one.
        seeds: How many divisions of the data, or trainings of a benchmark. What trains a
            transformer is run on the first division, as are ablations; of people who take turns,
            on each.
        old: The backbone that devices have.
        new: The backbone that comes, or is trained; after ``tuned:``, trained on each data set's
            public first.
        methods: Which methods; none takes all.
        extent: How much of the data; a name of ``prompts.rows.EXTENTS``.
    """

    results: Path
    data: tuple[str, ...] = ()
    data_dir: Path | None = None
    users: int = 1
    seeds: int = 1
    old: str = ""
    new: str = ""
    methods: tuple[str, ...] = ()
    extent: str = ""

    def work(self) -> Path:
        """Where what a run makes on the way is kept; it may be deleted."""
        # Absolute: what is kept there names files, and the run may be resumed from another folder.
        work = self.results.absolute() / "work"
        work.mkdir(parents=True, exist_ok=True)
        (work / ".gitignore").write_text("*\n", encoding="utf-8")
        return work
