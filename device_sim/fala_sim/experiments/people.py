"""What the experiments on people share: a plan, who takes part, and with which settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from fala import DataError, FalaError
from fala_sim.data.place import find_place, is_benchmark
from fala_sim.data_sets import Partition, Role
from fala_sim.engine.local import LocalEngine
from fala_sim.engine.task import Call, Engine, Needs, Say, Task
from fala_sim.experiments.runner import Giving, OtherPlanError, prepare_all, run_tasks
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import FIXED, RATING, TRAINED
from fala_sim.metric.statistics import selection_score
from fala_sim.records import Key, Kind, Store, read_records
from fala_sim.vendor.releases import inputs_of, load, prepare
from fala_sim.vendor.sources import TUNED, Source, find_source


@dataclass(frozen=True)
class Plan:
    """What is asked of a run.

    Attributes:
        results: The run's folder: records, tables, and a work folder that may be deleted.
        data: Data sets.
        data_dir: Where they are; None looks in the usual places.
        users: Test users of each data set.
        seeds: How many divisions of the data. What trains a transformer is run on the first, as
            are ablations, learning curves and chains; of people who take turns, on each.
        old: The backbone that devices have.
        new: The backbone that comes; after ``tuned:``, trained on each data set's public first.
        methods: Which methods.
    """

    results: Path
    data: tuple[str, ...]
    data_dir: Path | None
    users: int
    seeds: int
    old: str
    new: str
    methods: tuple[str, ...]


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


@dataclass(frozen=True)
class Experiment:
    """A kind of record that is made of people's replacements.

    Attributes:
        kind: Of the records.
        tasks: What there is to do.
        searched: The methods whose settings it needs, of those that are asked for.
        before: What is to be done before its tasks are made, whose records they read.
        alone: Whether it measures this machine: then its tasks run here, one by one, at last.
    """

    kind: Kind
    tasks: Callable[[Study], Iterator[Task]]
    searched: Callable[[Sequence[str]], list[str]] = lambda methods: []
    before: Callable[[Study], Iterator[Task]] = lambda study: iter(())
    alone: bool = False


class Study:
    """A plan, with what was prepared for it.

    Attributes:
        plan: What is asked.
        store: The run's records.
        say: Told of progress.
        methods: Those that can be run.
        tested: Who takes part, by division; empty before ``run`` has divided the data.
        settings: By data set and method; those that validation users chose.
    """

    def __init__(self, plan: Plan, say: Say) -> None:
        """Find the backbones; nothing is made.

        Args:
            plan: What is asked.
            say: Told of progress.

        Raises:
            DataError: If a backbone cannot be used.
        """
        if plan.old.startswith(TUNED):
            raise DataError(f"--old {plan.old}: only the backbone that comes, --new, is tuned")
        self.plan, self.say, self.store = plan, say, Store(plan.results)
        self.work = work_folder(plan.results)
        self._sources: dict[str, Source] = {}
        self._places: dict[tuple[str, int, Role, str, tuple[str, ...]], Path] = {}
        self.source(plan.old)  # a mistake in a name ends here, before anything is prepared
        self.trainable = self.source(plan.new).transformer is not None
        self.tested: list[Participants] = []
        self.settings: dict[str, dict[str, Settings]] = {}

    @cached_property
    def methods(self) -> list[str]:
        """Those that can be run: without a transformer's folder nothing trains it."""
        methods = [name for name in self.plan.methods if name not in TRAINED or self.trainable]
        if missing := set(self.plan.methods) - set(methods):
            self.say(
                f"{self.plan.new} is a graph alone: {', '.join(sorted(missing))} train a "
                "transformer and are left out; name its Hugging Face folder with --new to have them"
            )
        return methods

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
                say=self.say,
                earlier=[self.source(name) for name in earlier],
            )
        return self._places[key]

    def task(
        self,
        job: Callable[..., Giving],
        division: Participants,
        keys: Sequence[Key],
        more: Callable[[], Mapping[str, Any]] = dict,
    ) -> Task:
        """One job on a division.

        Args:
            job: Is given the key and what was prepared; where it gives several records, the key is
                without a variant, and ``done`` says which of them are recorded.
            division: Whose preparation it reads.
            keys: Of its records, which differ in their variants alone.
            more: More arguments, made when its turn comes.
        """
        key = keys[0] if len(keys) == 1 else replace(keys[0], variant="")

        def make() -> Call:
            place = self.prepared(division.data, division.seed, division.role)
            given = dict(more())
            if len(keys) > 1:
                given["done"] = self.store.keys.intersection(keys)
            places = [place, *given.get("through", ())]
            return Call(partial(job, key, place, **given), partial(inputs_of, places, key.method))

        needs = Needs(memory=(4 if key.method in TRAINED else 1) * 2**30)
        return Task(str(key), make, partial(self.store.keys.issuperset, keys), needs)

    def can_run(self, division: Participants, method: str) -> bool:
        """Whether a method takes a division's labels, and has what it is run with."""
        is_searched = method in FIXED or method in self.settings[division.data]
        return is_searched and takes(method, division)

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
            self.say(
                f"warning: {data} has too few people for --users {self.plan.users}: {len(users)} "
                f"of them are tested ({', '.join(users)}); those who come next are the validation "
                "users, who choose the settings. For more test users add people to the data"
            )
        # A record from before there were ratings does not name its task, for all are of labels.
        return Participants(data, seed, role, content.get("task", "classification"), users)

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
            present = find_place(data, self.plan.data_dir).digest()
        except FalaError:
            return  # without the data nothing can be compared
        if digests and present != digests["data"]:
            raise DataError(
                f"{self.plan.results} has records of other data of this name; name another folder "
                "with --results, or leave it out of --data"
            )


def run(plan: Plan, experiments: Sequence[Experiment], engine: Engine, say: Say) -> list[str]:
    """Run some experiments, as far as they are not recorded yet.

    Args:
        plan: What is asked.
        experiments: Which.
        engine: Runs the jobs.
        say: Told of progress.

    Returns:
        One line for each data set that cannot be used, and for each job that failed; everything
        else was run.

    Raises:
        DataError: If a backbone cannot be used, or the folder holds the records of another plan.
    """
    study = Study(plan, say)
    searched = {name: None for one in experiments for name in one.searched(study.methods)}
    study.tested, failures = divisions(study, plan.data, "test", plan.seeds)
    failures += _search(study, list(searched), engine)
    together = [one for one in experiments if not one.alone]
    before = [task for one in together for task in one.before(study)]
    failures += run_tasks(before, study.store, engine=engine, say=say)
    tasks = [task for one in together for task in one.tasks(study)]
    failures += run_tasks(tasks, study.store, engine=engine, say=say)
    for one in experiments:
        if one.alone:
            failures += run_tasks(one.tasks(study), study.store, engine=LocalEngine(1), say=say)
    return failures


def tuned(methods: Sequence[str]) -> list[str]:
    """Of some methods those whose settings are searched."""
    return [name for name in methods if name not in FIXED]


def takes(method: str, division: Participants) -> bool:
    """Whether a method can be fitted to a division's labels."""
    return method in RATING or division.task != "rating"


def first(divisions: Iterable[Participants]) -> Iterator[Participants]:
    """The divisions that are the first of their people: where they take turns, each of them."""
    people: set[tuple[str, str]] = set()
    for division in divisions:
        tested = {(division.data, user) for user in division.users}
        if people.isdisjoint(tested):
            yield division
        people |= tested


def first_labelled(divisions: Iterable[Participants]) -> Iterator[Participants]:
    """Those of ``first`` that are no ratings: what only replacements are run on has no labels."""
    return (division for division in first(divisions) if division.task != "rating")


def work_folder(results: Path) -> Path:
    """Where what a run makes on the way is kept; it may be deleted."""
    work = results / "work"
    work.mkdir(parents=True, exist_ok=True)
    (work / ".gitignore").write_text("*\n", encoding="utf-8")
    return work


def chosen_settings(
    results: Path, data: str, kind: Kind = "search", variant: str = ""
) -> dict[str, Settings]:
    """The settings of every searched method: those with the best mean score of validation users.

    The score is AUC; where validation users lack one, accuracy. A method without any score has no
    settings.

    Args:
        results: The run's folder.
        data: The data set.
        kind: Of the records of searches.
        variant: Of those that are read.
    """
    tried: dict[str, dict[str, tuple[Settings, list[float]]]] = {}
    for record in read_records(results, kind):
        asked = (record["data"], record["variant"]) == (data, variant)
        for one in record["tried"] if asked else ():
            if (score := selection_score(one)) is not None:
                method = tried.setdefault(record["method"], {})
                method.setdefault(repr(one["settings"]), (one["settings"], []))[1].append(score)
    return {
        name: max(options.values(), key=lambda option: fmean(option[1]))[0]
        for name, options in tried.items()
    }


def divisions(
    study: Study, data: Iterable[str], role: Role, seeds: int
) -> tuple[list[Participants], list[str]]:
    """Who takes part, of every data set that can be used, and a line for each that cannot."""

    def divide(name: str) -> list[Participants]:
        if is_benchmark(name):
            raise DataError("a benchmark has no people; `fala-sim table adapters` is of it")
        return [study.participants(name, role, seed) for seed in range(seeds)]

    divided, failures = prepare_all(data, divide, study.say)
    return [division for divisions in divided for division in divisions], failures


def _search(study: Study, methods: Sequence[str], engine: Engine) -> list[str]:
    """Search what is not searched yet; what failed.

    A method of which a search failed has no settings: those of the remaining validation users
    alone would stay for good, since what is recorded is not run again.
    """
    from fala_sim.experiments.replacement.jobs import search

    data = list(dict.fromkeys(division.data for division in study.tested))
    study.settings = {name: {} for name in data}
    if not methods:
        return []
    validation, failures = divisions(study, data, "validation", 1)
    keys = {
        (division.data, name): [
            Key("search", division.data, name, user, division.seed) for user in division.users
        ]
        for name in long_first(methods)
        for division in validation
        if takes(name, division)
    }
    of = {division.data: division for division in validation}
    tasks = (study.task(search, of[key.data], [key]) for some in keys.values() for key in some)
    failures += run_tasks(tasks, study.store, engine=engine, say=study.say)
    for name in of:
        chosen = chosen_settings(study.plan.results, name)
        study.settings[name] = {
            method: chosen[method]
            for method in methods
            if method in chosen and study.store.keys.issuperset(keys.get((name, method), ()))
        }
        if unset := [
            method
            for method in methods
            if takes(method, of[name]) and method not in study.settings[name]
        ]:
            failures.append(
                f"{name}: {', '.join(unset)}: not run without settings; see why their search failed"
            )
    return failures


def long_first(methods: Iterable[str]) -> list[str]:
    """Methods with those that train first, so that the cores end together."""
    return sorted(methods, key=lambda name: name not in TRAINED)
