"""What is asked of a run, and what its divisions are made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fala import DataError, FalaError
from fala_sim.data.place import find_place
from fala_sim.data_sets import Role
from fala_sim.engine.task import Say
from fala_sim.run.releases import prepare
from fala_sim.run.sources import TUNED, Source, find_source


@dataclass(frozen=True)
class Plan:
    """What is asked of a run.

    Attributes:
        results: The run's folder: records, tables, and a work folder that may be deleted.
        data: Data sets.
        data_dir: Where they are; None looks in the usual places.
        users: Test users of each data set.
        seeds: How many divisions of the data. What trains a transformer is run on the first, as
            are ablations, learning curves and chains.
        old: The backbone that devices have.
        new: The backbone that comes; after ``tuned:``, trained on each data set's public first.
        methods: Which methods.
        jobs: Processes at once.
        extent: How much of the data writers' prompts are tried on; a name of
            ``fala_sim.run.prompt_rows.EXTENTS``.

    Raises:
        DataError: If the old backbone is to be trained first.
    """

    results: Path
    data: tuple[str, ...]
    data_dir: Path | None
    users: int
    seeds: int
    old: str
    new: str
    methods: tuple[str, ...]
    jobs: int
    extent: str = "quick"

    def __post_init__(self) -> None:
        if self.old.startswith(TUNED):
            raise DataError(f"--old {self.old}: only the backbone that comes, --new, is tuned")

    @property
    def work(self) -> Path:
        """Where what is made on the way is kept."""
        return self.results / "work"


class OtherPlanError(DataError):
    """A folder has the records of another plan than the one that is asked."""


class Vendor:
    """Finds the backbones and prepares divisions, each when a job first needs it."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self._plan, self._say = plan, say
        self._sources: dict[str, Source] = {}
        self._places: dict[tuple[str, int, Role, str], Path | FalaError] = {}

    def source(self, name: str) -> Source:
        """A backbone by name."""
        if name not in self._sources:
            self._sources[name] = find_source(name, self._plan.work)
        return self._sources[name]

    def data_digest(self, data: str) -> str | None:
        """Of a data set's files; None where they are not there, so that nothing can be told."""
        try:
            return find_place(data, self._plan.data_dir).digest()
        except FalaError:
            return None

    def place(self, data: str, seed: int, role: Role, new: str | None = None) -> Path:
        """What the jobs of a division share, with the plan's new backbone or another.

        Raises:
            FalaError: If it cannot be prepared; it is not tried again.
        """
        name = new or self._plan.new
        key = (data, seed, role, name)
        if key not in self._places:
            plan = self._plan
            try:
                self._places[key] = prepare(
                    data, plan.data_dir, plan.work, self.source(plan.old), self.source(name),
                    users=plan.users, seed=seed, role=role, say=self._say,
                )  # fmt: skip
            except FalaError as error:
                self._places[key] = error
        found = self._places[key]
        if isinstance(found, FalaError):
            raise found
        return found
