"""What the experiments on people share: who takes part, with which settings, and how all is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from fala import DataError, FalaError
from fala_sim.data.location import find_location, is_benchmark
from fala_sim.data_sets import Partition, Role
from fala_sim.engine.local import LocalEngine
from fala_sim.engine.task import Call, Engine, Log, Needs, Task
from fala_sim.experiments.plan import Plan
from fala_sim.experiments.runner import OtherPlanError, Records, prepare_all, run_tasks
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import ALL_TASKS, FIXED, METHODS, TRAINED
from fala_sim.metric.statistics import selection_score
from fala_sim.records import Key, Kind, Store, read_records
from fala_sim.situation import CLASSES
from fala_sim.vendor.releases import inputs_of, load, prepare
from fala_sim.vendor.sources import TUNED, Source, find_source


@dataclass(frozen=True)
class Participants:
    """Who takes part in a division, as its record tells.

    Attributes:
        data: The data set.
        seed: The division's.
        role: Test or validation users.
        task: What their labels are of; see ``Division``.
        users: Their names, each with the number of train examples.
    """

    data: str
    seed: int
    role: Role
    task: str
    users: Mapping[str, int]


#: Settings by variant of their search.
BySize: TypeAlias = "Mapping[str, Settings]"
#: Chosen settings by data set and method.
Chosen: TypeAlias = "Mapping[tuple[str, str], BySize]"


class Study:
    """A plan, with what was prepared for it.

    Attributes:
        plan: What is asked.
        store: The run's records.
        log: Told of progress.
        methods: Those that can be run.
        failures: A line for each data set that cannot be divided.
    """

    def __init__(self, plan: Plan, log: Log) -> None:
        """Find the backbones; nothing is made.

        Args:
            plan: What is asked.
            log: Told of progress.

        Raises:
            DataError: If a backbone cannot be used.
        """
        if plan.old.startswith(TUNED):
            raise DataError(f"--old {plan.old}: only the backbone that comes, --new, is tuned")
        self.plan, self.log, self.store = plan, log, Store(plan.results)
        self.failures: list[str] = []
        self.work = plan.work()
        self._sources: dict[str, Source] = {}
        self._places: dict[tuple[str, int, Role, str, tuple[str, ...]], Path] = {}
        self.source(plan.old)  # a mistake in a name ends here, before anything is prepared
        self.trainable = self.source(plan.new).transformer is not None

    @cached_property
    def methods(self) -> list[str]:
        """Those that can be run: without a transformer's folder nothing trains it."""
        asked = self.plan.methods or tuple(METHODS)
        methods = [name for name in asked if name not in TRAINED or self.trainable]
        if missing := set(asked) - set(methods):
            self.log(
                f"{self.plan.new} is a graph alone: {', '.join(sorted(missing))} train a "
                "transformer and are left out; name its Hugging Face folder with --new to have them"
            )
        return methods

    @cached_property
    def tested(self) -> list[Participants]:
        """Who is tested, by division."""
        return self._divided(self.plan.data, "test", self.plan.seeds)

    @cached_property
    def validation(self) -> list[Participants]:
        """Who chooses settings, of every data set whose people are tested."""
        data = dict.fromkeys(division.data for division in self.tested)
        return self._divided(data, "validation", 1)

    def source(self, name: str) -> Source:
        """A backbone by name."""
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
        """What the jobs of a division share, with the plan's new backbone or another.

        Args:
            data: The data set.
            seed: Of the division.
            role: Test or validation users.
            new: The backbone that comes.
            earlier: More backbones from which its release has bridges.

        Raises:
            FalaError: If it cannot be prepared.
        """
        key = (data, seed, role, new or self.plan.new, earlier)
        if key not in self._places:
            self._places[key] = prepare(
                Partition(data, self.plan.data_dir, self.plan.users, seed),
                self.work,
                self.source(self.plan.old),
                self.source(new or self.plan.new),
                role=role,
                log=self.log,
                earlier=[self.source(name) for name in earlier],
            )
        return self._places[key]

    def participants(self, data: str, role: Role, seed: int) -> Participants:
        """Who takes part in a division of a data set.

        It is recorded, so that a folder of records can be read without the data; and so that
        records of other data, other backbones, or another number of users, are not taken for those
        of this plan, whatever their names.

        Raises:
            OtherPlanError: If the folder has records of another plan.
            fala.FalaError: If the data cannot be used.
        """
        key = Key("division", data, role, "all", seed)
        if key not in self.store.keys:
            prepared = load(self.prepared(data, seed, role))
            content = {
                **self._asked(),
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
        users = {user["name"]: user["train"] for user in content["users"]}
        if role == "test" and seed == 0 and len(users) < self.plan.users:
            self.log(
                f"warning: {data} has too few people for --users {self.plan.users}: {len(users)} "
                f"of them are tested ({', '.join(users)}); those who come next are the validation "
                "users, who choose the settings. For more test users add people to the data"
            )
        # A record from before there were ratings does not name its task, for all are of labels.
        return Participants(data, seed, role, content.get("task", "classification"), users)

    def _divided(self, data: Iterable[str], role: Role, seeds: int) -> list[Participants]:
        def divide(name: str) -> list[Participants]:
            if is_benchmark(name):
                raise DataError("a benchmark has no people; `fala-sim table adapters` is of it")
            return [self.participants(name, role, seed) for seed in range(seeds)]

        divided, failures = prepare_all(data, divide, self.log)
        self.failures += failures
        return [division for divisions in divided for division in divisions]

    def _asked(self) -> dict[str, Any]:
        """By the backbones' names: a folder may lie elsewhere when a run goes on."""
        old, new = self.source(self.plan.old).name, self.source(self.plan.new).name
        return {"old": old, "new": new, "asked": self.plan.users}

    def _check(self, data: str, record: Mapping[str, Any]) -> None:
        """Whether a division's record is of this plan; one from before digests has names alone."""
        asked = self._asked()
        if other := [name for name in asked if record[name] != asked[name]]:
            options = {"old": "--old", "new": "--new", "asked": "--users"}
            has, wanted = (
                ", ".join(f"{options[name]} {values[name]}" for name in other)
                for values in (record, asked)
            )
            raise OtherPlanError(
                f"{self.plan.results}: has records with {has}, where {wanted} is asked; name "
                "another folder with --results"
            )
        digests = record.get("digests", {})
        for name, backbone in (("old", self.plan.old), ("new", self.plan.new)):
            if digests and digests[name] != self.source(backbone).digest:
                raise OtherPlanError(
                    f"{self.plan.results}: has records with another backbone of the name "
                    f"{backbone!r}; name another folder with --results"
                )
        try:
            present = find_location(data, self.plan.data_dir).digest()
        except FalaError:
            return  # without the data nothing can be compared
        if digests and present != digests["data"]:
            raise DataError(
                f"{self.plan.results} has records of other data of this name; name another folder "
                "with --results, or leave it out of --data"
            )


def each(study: Study, _method: str = "") -> Iterable[Participants]:
    """All divisions of those who are tested."""
    return study.tested


def first(study: Study, _method: str = "") -> Iterator[Participants]:
    """The divisions that are the first of their people: where they take turns, each of them."""
    people: set[tuple[str, str]] = set()
    for division in study.tested:
        tested = {(division.data, user) for user in division.users}
        if people.isdisjoint(tested):
            yield division
        people |= tested


def first_of_classes(study: Study, _method: str = "") -> Iterator[Participants]:
    """Those of ``first`` whose labels are classes: only replacements are of ratings and tags."""
    return (division for division in first(study) if division.task in CLASSES)


def validated(study: Study, _method: str) -> Iterable[Participants]:
    """The divisions whose people choose settings: an experiment on them is a search."""
    return study.validation


@dataclass(frozen=True)
class Experiment:
    """A kind of record that is made of people's replacements.

    Attributes:
        kind: Of the records.
        job: Makes those of one user and method: ``job(key, place)`` with what was prepared. Where
            there are variants, the key has none, and ``done`` says which records there are. Where
            settings are searched, ``settings`` are the chosen ones, by variant where the search
            has any; of a method without settings there are none.
        methods: Which are run; a search those of them whose settings are not fixed.
        divisions: On whom a method is run.
        variants: Of the records of a user with so many train examples.
        search: What the settings are chosen by; None of an experiment whose methods have none.
        more: More arguments of the job, made when its turn comes.
        users: How many of a division's users; None takes all.
        alone: Whether it measures this machine: then its tasks run here, one by one, at last.
    """

    kind: Kind
    job: Callable[..., Records]
    methods: Callable[[Study], Iterable[str]] = lambda study: study.methods
    divisions: Callable[[Study, str], Iterable[Participants]] = first_of_classes
    variants: Callable[[int], Iterable[object]] | None = None
    search: Experiment | None = None
    more: Callable[[Study, Participants], Mapping[str, Any]] = lambda study, division: {}
    users: int | None = None
    alone: bool = False

    def keys(
        self, study: Study, methods: Iterable[str]
    ) -> Iterator[tuple[Participants, str, list[Key]]]:
        """The division, the method and the records of each job of some methods."""
        # Those that train come first, so that the cores end together.
        for method in sorted(methods, key=lambda name: name not in TRAINED):
            for division in self.divisions(study, method):
                if method not in ALL_TASKS and division.task not in CLASSES:
                    continue
                for user, examples in islice(division.users.items(), self.users):
                    key = Key(self.kind, division.data, method, user, division.seed)
                    variants = ("",) if self.variants is None else self.variants(examples)
                    if keys := [key.of(variant) for variant in variants]:
                        yield division, method, keys

    def tasks(self, study: Study, methods: Iterable[str], chosen: Chosen) -> Iterator[Task]:
        """What there is to do, of the methods that have their settings."""
        for division, method, keys in self.keys(study, methods):
            settings = chosen.get((division.data, method))
            if self.search is None or settings is not None or method in FIXED:
                yield self._task(study, division, keys, settings or {})

    def _task(
        self, study: Study, division: Participants, keys: Sequence[Key], settings: BySize
    ) -> Task:
        key = keys[0].of("")

        def make() -> Call:
            place = study.prepared(division.data, division.seed, division.role)
            given = dict(self.more(study, division))
            if self.variants is not None:
                given["done"] = study.store.keys.intersection(keys)
            if self.search is not None:
                by_variant = self.search.variants is not None
                given["settings"] = settings if by_variant else settings.get("", {})
            places = [place, *given.get("through", ())]
            job = partial(self.job, key, place, **given)
            return Call(job, partial(inputs_of, places, key.method))

        needs = Needs(memory=(4 if key.method in TRAINED else 1) * 2**30)
        return Task(str(key), make, partial(study.store.keys.issuperset, keys), needs)


def run(plan: Plan, experiments: Sequence[Experiment], engine: Engine, log: Log) -> list[str]:
    """Run some experiments, as far as they are not recorded yet.

    Args:
        plan: What is asked.
        experiments: Which.
        engine: Runs the jobs.
        log: Told of progress.

    Returns:
        One line for each data set that cannot be used, and for each job that failed; everything
        else was run.

    Raises:
        DataError: If a backbone cannot be used, or the folder holds the records of another plan.
    """
    study = Study(plan, log)
    run_each = partial(run_tasks, store=study.store, log=log)
    failures: list[str] = []
    searches = {
        search: None
        for one in experiments
        if (search := one if one.divisions is validated else one.search) is not None
    }
    chosen: dict[Experiment | None, Chosen] = {None: {}}
    for search in searches:
        asked = [
            name
            for one in experiments
            if search in (one, one.search)
            for name in one.methods(study)
            if name not in FIXED
        ]
        methods = list(dict.fromkeys(asked))
        failures += run_each(search.tasks(study, methods, {}), engine=engine)
        chosen[search], unset = _chosen(study, search, methods)
        failures += unset
    tasks: dict[bool, list[Task]] = {False: [], True: []}
    for one in experiments:
        if one not in searches:
            tasks[one.alone] += one.tasks(study, one.methods(study), chosen[one.search])
    failures += run_each(tasks[False], engine=engine)
    failures += run_each(tasks[True], engine=LocalEngine(1))
    return [*study.failures, *failures]


def _chosen(study: Study, search: Experiment, methods: Sequence[str]) -> tuple[Chosen, list[str]]:
    """The settings that a search chose, and a line for each data set of which some are missing.

    A method of which a search failed has no settings: those of the remaining validation users
    alone would stay for good, since what is recorded is not run again.
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
        f"{data}: {', '.join(sorted(names))}: not run without settings; see why their search failed"
        for data, names in sorted(unset.items())
    ]


def chosen_settings(results: Path, kind: Kind) -> dict[tuple[str, str], dict[str, Settings]]:
    """Of every searched method the settings with the best mean score of validation users.

    The score is AUC; where validation users lack one, accuracy. A method without any score has no
    settings.

    Args:
        results: The run's folder.
        kind: Of the records of searches.

    Returns:
        By data set and method, and by variant of the search.
    """
    tried: dict[tuple[str, str, str], dict[str, tuple[Settings, list[float]]]] = {}
    for record in read_records(results, kind):
        options = tried.setdefault((record["data"], record["method"], record["variant"]), {})
        for one in record["tried"]:
            if (score := selection_score(one)) is not None:
                options.setdefault(repr(one["settings"]), (one["settings"], []))[1].append(score)
    chosen: dict[tuple[str, str], dict[str, Settings]] = {}
    for (data, method, variant), options in tried.items():
        if options:
            best = max(options.values(), key=lambda option: fmean(option[1]))[0]
            chosen.setdefault((data, method), {})[variant] = best
    return chosen
