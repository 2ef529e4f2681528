"""The shared part of the experiments on people: participants, and the run itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from fala import DataError, FalaError
from fala_sim.data.division import Partition
from fala_sim.data.format import Role
from fala_sim.data.location import find_location
from fala_sim.data.users import CLASSES
from fala_sim.engine.job import TRAINING, Call, Engine, Job, Log, Needs
from fala_sim.engine.local import LocalEngine
from fala_sim.experiments.chosen import BySize, Chosen, chosen_settings
from fala_sim.experiments.plan import PeoplePlan
from fala_sim.experiments.runner import OtherPlanError, Records, prepare_all, run_jobs
from fala_sim.methods.registry import ALL_TASKS, FILES, FIXED, METHODS, TRAINED, with_methods
from fala_sim.prepare.releases import load_prepared, prepare_releases, release_inputs
from fala_sim.prepare.sources import TUNED, RunBackbone, find_source
from fala_sim.records.store import RecordKey, RecordKind, RecordStore


@dataclass(frozen=True)
class Participants:
    """The participants of a division, from its record.

    Attributes:
        data: Name of the data set.
        seed: Seed of the division.
        role: Whether they are test or validation users.
        task: Task of their labels; see ``Division``.
        users: Number of train examples by user.
    """

    data: str
    seed: int
    role: Role
    task: str
    users: Mapping[str, int]


class PeopleStudy:
    """A plan, with the divisions prepared for it.

    Attributes:
        plan: Options of the run.
        store: Records of the run.
        methods: The methods that can be run.
        failures: A line for each data set that cannot be divided.
    """

    def __init__(self, plan: PeoplePlan, log: Log) -> None:
        """Find the backbones; nothing is prepared yet.

        Args:
            plan: Options of the run.
            log: Function that receives lines of progress.

        Raises:
            DataError: A backbone cannot be used.
        """
        if plan.old.startswith(TUNED):
            raise DataError(f"--old {plan.old}: only the new backbone, --new, can be tuned")
        self.plan, self.store = plan, RecordStore(plan.results)
        self._log, self._logged = log, set[str]()
        self.failures: list[str] = []
        self.work = plan.work()
        self._sources: dict[str, RunBackbone] = {}
        self._paths: dict[tuple[str, int, Role, str, tuple[str, ...]], Path] = {}
        self._check_files()
        self.source(plan.old)  # so that a mistake in a name fails before anything is prepared
        self.trainable = self.source(plan.new).transformer is not None

    def log(self, line: str) -> None:
        """Report a line of progress, once."""
        if line not in self._logged:
            self._logged.add(line)
            self._log(line)

    @cached_property
    def methods(self) -> list[str]:
        """The methods that can be run: training needs a transformer's folder."""
        names = self.plan.methods or tuple(METHODS)
        methods = [name for name in names if name not in TRAINED or self.trainable]
        if missing := set(names) - set(methods):
            self.log(
                f"{self.plan.new} is only a graph; left out, because they train a transformer: "
                f"{', '.join(sorted(missing))}; name its Hugging Face folder with --new to run them"
            )
        return methods

    @cached_property
    def tested(self) -> list[Participants]:
        """The divisions of test users."""
        return self._divided(self.plan.data, "test", self.plan.seeds)

    @cached_property
    def validation(self) -> list[Participants]:
        """The division of validation users, who choose settings, of every tested data set."""
        data = dict.fromkeys(division.data for division in self.tested)
        return self._divided(data, "validation", 1)

    def _check_files(self) -> None:
        """Check that the records of an added method are from the same file."""
        added = {name: FILES[name].digest for name in self.plan.methods if name in FILES}
        for record in self.store.read() if added else ():
            name = record["method"]
            made_by = record["provenance"].get("method", {})
            if name in added and made_by.get("sha256") != added[name]:
                raise OtherPlanError(
                    f"{self.plan.results}: has records of the method {name!r} from another file; "
                    "name another folder with --results"
                )

    def source(self, name: str) -> RunBackbone:
        """Return the backbone with this name."""
        if name not in self._sources:
            self._sources[name] = find_source(name, self.work)
        return self._sources[name]

    def prepared(
        self,
        data: str,
        seed: int,
        role: Role,
        new: str | None = None,
        earlier: tuple[str, ...] = (),
    ) -> Path:
        """Return the file of a prepared division, with the plan's new backbone or another one.

        Args:
            data: The data set.
            seed: Seed of the division.
            role: Whether to prepare test or validation users.
            new: The new backbone.
            earlier: More backbones from which its release has bridges.

        Raises:
            FalaError: The division cannot be prepared.
        """
        key = (data, seed, role, new or self.plan.new, earlier)
        if key not in self._paths:
            self._paths[key] = prepare_releases(
                Partition(data, self.plan.data_dir, self.plan.users, seed),
                self.work,
                self.source(self.plan.old),
                self.source(new or self.plan.new),
                role=role,
                log=self.log,
                earlier=[self.source(name) for name in earlier],
            )
        return self._paths[key]

    def participants(self, data: str, role: Role, seed: int) -> Participants:
        """Return the participants of a division of a data set.

        They are recorded for two reasons: records can then be read without the data, and records of
        other data, other backbones or another number of users are not mixed with this plan's
        records.

        Raises:
            OtherPlanError: The folder has records of another plan.
            fala.FalaError: The data cannot be used.
        """
        key = RecordKey("division", data, role, "all", seed)
        if key not in self.store.keys:
            prepared = load_prepared(self.prepared(data, seed, role))
            content = {
                **self._options(),
                "digests": dict(prepared.digests),
                "task": prepared.division.task,
                "trainable": prepared.transformer is not None,
                "users": [
                    {"name": user.name, "train": len(user.train), "test": len(user.test)}
                    for user in prepared.division.users
                ],
                "public": len(prepared.division.public),
                "left_out": list(prepared.division.left_out),
                "vendor": prepared.vendor,
            }
            self.store.append(key, content)
        else:
            content = self.store.get(key) or {}
            self._check(data, content)
        for line in (*content["left_out"], *_refused(content["vendor"])):
            self.log(f"{data}: {line}")
        users = {user["name"]: user["train"] for user in content["users"]}
        if role == "test" and seed == 0 and len(users) < self.plan.users:
            self.log(
                f"warning: {data} has too few people for --users {self.plan.users}: {len(users)} "
                f"of them are test users ({', '.join(users)}), and the next ones are the "
                "validation users, who choose the settings. For more test users, add people to the "
                "data"
            )
        return Participants(data, seed, role, content["task"], users)

    def _divided(self, data: Iterable[str], role: Role, seeds: int) -> list[Participants]:
        def divide(name: str) -> list[Participants]:
            return [self.participants(name, role, seed) for seed in range(seeds)]

        divided, failures = prepare_all(data, divide, self.log)
        self.failures += failures
        return [division for divisions in divided for division in divisions]

    def _options(self) -> dict[str, Any]:
        """Return the recorded options, with backbones by name, because folders may move later."""
        old, new = self.source(self.plan.old).name, self.source(self.plan.new).name
        return {"old": old, "new": new, "asked": self.plan.users}

    def _check(self, data: str, record: Mapping[str, Any]) -> None:
        """Check that a division's record belongs to this plan."""
        expected = self._options()
        if changed := [name for name in expected if record[name] != expected[name]]:
            options = {"old": "--old", "new": "--new", "asked": "--users"}
            theirs, ours = (
                ", ".join(f"{options[name]} {values[name]}" for name in changed)
                for values in (record, expected)
            )
            raise OtherPlanError(
                f"{self.plan.results}: has records with {theirs}, not with {ours}; name another "
                "folder with --results"
            )
        digests = record["digests"]
        for name, backbone in (("old", self.plan.old), ("new", self.plan.new)):
            if digests[name] != self.source(backbone).digest:
                raise OtherPlanError(
                    f"{self.plan.results}: has records with another backbone of the name "
                    f"{backbone!r}; name another folder with --results"
                )
        try:
            present = find_location(data, self.plan.data_dir).digest()
        except FalaError:
            return  # without the data there is no digest to compare
        if present != digests["data"]:
            raise DataError(
                f"{self.plan.results}: has records of other data with this name; name another "
                "folder with --results, or leave it out of --data"
            )


def _refused(vendor: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the vendor could not learn from the public, a bridge first, with the reason."""
    for name, learnt in vendor.items():
        if "refused" in learnt:
            yield f"no {name}: {learnt['refused']}"


def all_divisions(study: PeopleStudy) -> list[Participants]:
    """Return all divisions of test users."""
    return study.tested


def first(study: PeopleStudy) -> list[Participants]:
    """Return the first division of each group of people; all divisions if people take turns."""
    return list(_of_new_people(study.tested))


def _of_new_people(divisions: Iterable[Participants]) -> Iterator[Participants]:
    """Yield the divisions none of whose people are in an earlier one."""
    people: set[tuple[str, str]] = set()
    for division in divisions:
        tested = {(division.data, user) for user in division.users}
        if people.isdisjoint(tested):
            yield division
        people |= tested


def first_of_classes(study: PeopleStudy) -> list[Participants]:
    """Return the divisions of ``first`` whose labels are classes.

    Ratings and tags are used only in replacements.
    """
    return [division for division in first(study) if division.task in CLASSES]


def validated(study: PeopleStudy) -> list[Participants]:
    """Return the divisions of validation users: an experiment on them is a search."""
    return study.validation


@dataclass(frozen=True)
class Experiment:
    """A kind of record about people's replacements.

    Attributes:
        kind: Kind of the records.
        job: Function that makes the records of one user and method: ``job(key, path)``, with the
            path of the prepared division. With ``variants``, the key has none, and the argument
            ``done`` has the recorded keys. With ``search``, the argument ``settings`` has the
            chosen settings, by variant if the search has variants; it is empty for a method without
            settings.
        methods: The methods to run; a search skips methods with fixed settings.
        divisions: The divisions on which the methods run; methods that train a transformer run only
            on the first division of each group of people.
        variants: Variants of the records, by a user's number of train examples.
        search: The experiment that chooses the settings; None if the methods have none.
        through: Names of successive releases. Each is prepared with bridges from those before it,
            and the job's argument ``through`` has their files.
        users: Maximum number of a division's users; None for all.
        alone: Whether it measures this machine. Its tasks then run here, one by one, at the end.
    """

    kind: RecordKind
    job: Callable[..., Records]
    methods: Callable[[PeopleStudy], Iterable[str]] = lambda study: study.methods
    divisions: Callable[[PeopleStudy], list[Participants]] = first_of_classes
    variants: Callable[[int], Iterable[object]] | None = None
    search: Experiment | None = None
    through: tuple[str, ...] = ()
    users: int | None = None
    alone: bool = False

    def keys(
        self, study: PeopleStudy, methods: Iterable[str]
    ) -> Iterator[tuple[Participants, str, list[RecordKey]]]:
        """Yield the division, the method and the record keys of each job of some methods."""
        # Trained methods, which take longest, come first.
        for method in sorted(methods, key=lambda name: name not in TRAINED):
            divisions, most = self.divisions(study), self.users
            if method in TRAINED and study.plan.trained_users is not None:
                most = min(most or study.plan.trained_users, study.plan.trained_users)
            for division in _of_new_people(divisions) if method in TRAINED else divisions:
                if method not in ALL_TASKS and division.task not in CLASSES:
                    continue
                for user, examples in islice(division.users.items(), most):
                    key = RecordKey(self.kind, division.data, method, user, division.seed)
                    variants = ("",) if self.variants is None else self.variants(examples)
                    if keys := [key.of(variant) for variant in variants]:
                        yield division, method, keys

    def jobs(self, study: PeopleStudy, methods: Iterable[str], chosen: Chosen) -> Iterator[Job]:
        """Yield the jobs of the methods whose settings are chosen or fixed."""
        for division, method, keys in self.keys(study, methods):
            settings = chosen.get((division.data, method))
            if self.search is None or settings is not None or method in FIXED:
                yield self._job(study, division, keys, settings or {})

    def _job(
        self,
        study: PeopleStudy,
        division: Participants,
        keys: Sequence[RecordKey],
        settings: BySize,
    ) -> Job:
        key = keys[0].of("")

        def make() -> Call:
            prepared = partial(study.prepared, division.data, division.seed, division.role)
            later = enumerate(self.through)
            paths = [prepared(), *(prepared(name, self.through[:number]) for number, name in later)]
            arguments: dict[str, Any] = {"through": paths[1:]} if self.through else {}
            if self.variants is not None:
                arguments["done"] = study.store.keys.intersection(keys)
            if self.search is not None:
                by_variant = self.search.variants is not None
                arguments["settings"] = settings if by_variant else settings.get("", {})
            job = partial(self.job, key, paths[0], **arguments)
            if key.method in FILES:
                job = partial(with_methods, [FILES[key.method]], job)
            return Call(job, partial(release_inputs, paths, trains=key.method in TRAINED))

        needs = TRAINING if key.method in TRAINED else Needs()
        return Job(str(key), make, partial(study.store.keys.issuperset, keys), needs)


def run(plan: PeoplePlan, experiments: Sequence[Experiment], engine: Engine, log: Log) -> list[str]:
    """Run the jobs of some experiments that are not recorded yet.

    Args:
        plan: Options of the run.
        experiments: The experiments.
        engine: Engine that runs the jobs.
        log: Function that receives lines of progress.

    Returns:
        One line for each data set that cannot be used, and for each job that failed.

    Raises:
        DataError: A backbone cannot be used, or the folder has the records of another plan.
    """
    study = PeopleStudy(plan, log)
    run_each = partial(run_jobs, store=study.store, log=log)
    failures: list[str] = []
    searches = {
        search: None
        for each in experiments
        if (search := each if each.divisions is validated else each.search) is not None
    }
    chosen: dict[Experiment | None, Chosen] = {None: {}}
    for search in searches:
        names = [
            name
            for each in experiments
            if search in (each, each.search)
            for name in each.methods(study)
            if name not in FIXED
        ]
        methods = list(dict.fromkeys(names))
        failures += run_each(search.jobs(study, methods, {}), engine=engine)
        chosen[search], unset = _chosen(study, search, methods)
        failures += unset
    jobs: dict[bool, list[Job]] = {False: [], True: []}
    for each in experiments:
        if each not in searches:
            jobs[each.alone] += each.jobs(study, each.methods(study), chosen[each.search])
    failures += run_each(jobs[False], engine=engine)
    failures += run_each(jobs[True], engine=LocalEngine(1))
    return [*study.failures, *failures]


def _chosen(
    study: PeopleStudy, search: Experiment, methods: Sequence[str]
) -> tuple[Chosen, list[str]]:
    """Return the settings that a search chose, and a line for each data set that lacks settings.

    A method has no settings if the search failed on one validation user. Settings from the other
    users alone would be final, because recorded jobs are not run again.
    """
    recorded = chosen_settings(study.plan.results, search.kind)
    complete: dict[tuple[str, str], bool] = {}
    for division, method, keys in search.keys(study, methods):
        pair = (division.data, method)
        complete[pair] = complete.get(pair, True) and study.store.keys.issuperset(keys)
    settings = {pair: recorded[pair] for pair in complete if complete[pair] and pair in recorded}
    unset: dict[str, list[str]] = {}
    for data, method in complete.keys() - settings.keys():
        unset.setdefault(data, []).append(method)
    return settings, [
        f"{data}: {', '.join(sorted(names))}: not run, because they have no settings; "
        "see why their search failed"
        for data, names in sorted(unset.items())
    ]
