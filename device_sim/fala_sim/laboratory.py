"""What is run for the tables and figures: every method on every user, settings chosen first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from fala import DataError
from fala_sim import jobs
from fala_sim.data_sets import Role, find_folder
from fala_sim.jobs import BUDGETS, SIZES, Job
from fala_sim.methods.catalogue import FIXED, TRAINED
from fala_sim.methods.method import Settings
from fala_sim.records import Key, Kind, Record, read_record, read_records, write_record
from fala_sim.releases import Source, find_source, load, prepare
from fala_sim.runner import Task, run_tasks
from fala_sim.statistics import selection_score

Say = Callable[[str], None]

#: The backbones of a chain of three replacements, beside the old and the new one.
CHAIN_THROUGH = "bert"


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
        new: The backbone that comes.
        methods: Which methods.
        jobs: Processes at once.
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

    @property
    def work(self) -> Path:
        """Where what is made on the way is kept."""
        return self.results / "work"


@dataclass(frozen=True)
class _Division:
    """Who takes part, as a record tells it."""

    data: str
    seed: int
    role: Role
    users: tuple[str, ...]
    sizes: tuple[int, ...]


class _Vendor:
    """Finds the backbones and prepares divisions, each when a job first needs it."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self._plan, self._say = plan, say
        self._sources: dict[str, Source] = {}
        self._places: dict[tuple[str, int, Role, str], Path] = {}

    def source(self, name: str) -> Source:
        """A backbone by name."""
        if name not in self._sources:
            self._sources[name] = find_source(name, self._plan.work, self._say)
        return self._sources[name]

    def place(self, data: str, seed: int, role: Role, new: str | None = None) -> Path:
        """What the jobs of a division share, with the plan's new backbone or another."""
        name = new or self._plan.new
        key = (data, seed, role, name)
        if key not in self._places:
            plan = self._plan
            self._places[key] = prepare(
                data, find_folder(plan.data_dir), plan.work,
                self.source(plan.old), self.source(name),
                users=plan.users, seed=seed, role=role, say=self._say,
            )  # fmt: skip
        return self._places[key]


def run(plan: Plan, kinds: Sequence[Kind], say: Say) -> list[str]:
    """Run what some kinds of record need, and is not recorded yet.

    Args:
        plan: What is asked.
        kinds: Kinds of record.
        say: Told of progress.

    Returns:
        One line for each job that failed.

    Raises:
        DataError: If the data or a backbone cannot be used, or the folder holds the records of
            another plan.
    """
    plan.work.mkdir(parents=True, exist_ok=True)
    (plan.work / ".gitignore").write_text("*\n", encoding="utf-8")
    vendor = _Vendor(plan, say)
    failures: list[str] = []
    if "flops" in kinds:
        failures += run_tasks(_flops(plan), jobs=1, say=say)
    if set(kinds) == {"flops"}:
        return failures
    tested, trainable = _divisions(plan, vendor, "test", say)
    methods = [name for name in plan.methods if name not in TRAINED or trainable]
    if missing := set(plan.methods) - set(methods):
        say(
            f"{plan.new} is a bundle only: {', '.join(sorted(missing))} train a transformer and "
            "are left out; name its Hugging Face folder with --new to have them"
        )
    if set(kinds) & {"search", "replacement", "curve", "ablation"}:
        searched, _ = _divisions(plan, vendor, "validation", say)
        tasks = list(_searches(plan, vendor, searched, methods))
        failures += run_tasks(tasks, jobs=plan.jobs, say=say)
    settings = {data: chosen_settings(plan.results, data) for data in plan.data}
    tasks = []
    if "replacement" in kinds:
        tasks += _replacements(plan, vendor, tested, methods, settings)
    if "frontier" in kinds:
        tasks += _frontiers(plan, vendor, tested)
    if "ablation" in kinds:
        tasks += _ablations(plan, vendor, tested, settings)
    if "curve" in kinds:
        tasks += _curves(plan, vendor, tested, methods, settings)
    if "chain" in kinds:
        tasks += _chains(plan, vendor, tested)
    failures += run_tasks(tasks, jobs=plan.jobs, say=say)
    if "profile" in kinds:
        # One by one: they measure this machine's speed, and take their share of its cores.
        failures += run_tasks(_profiles(plan, vendor, tested, trainable), jobs=1, say=say)
    return failures


def chosen_settings(results: Path, data: str) -> dict[str, Settings]:
    """The settings of every searched method: those with the best mean score of validation users.

    The score is AUC; where validation users lack one, accuracy.

    Args:
        results: The run's folder.
        data: The data set.
    """
    tried: dict[str, dict[str, tuple[Settings, list[float]]]] = {}
    for record in read_records(results, "search"):
        if record["data"] == data:
            method = tried.setdefault(record["method"], {})
            for one in record["tried"]:
                scores = method.setdefault(repr(one["settings"]), (one["settings"], []))[1]
                if (score := selection_score(one)) is not None:
                    scores.append(score)
    return {
        name: max(options.values(), key=lambda option: fmean(option[1]))[0]
        for name, options in tried.items()
    }


def _divisions(plan: Plan, vendor: _Vendor, role: Role, say: Say) -> tuple[list[_Division], bool]:
    """Who takes part, and whether the new backbone can be trained.

    It is recorded, so that a folder of records can be read without the data; and so that records
    of other backbones, or of another number of users, are not taken for those of this plan.
    """
    asked = {"old": plan.old, "new": plan.new, "asked": plan.users}
    divisions = []
    trainable = True
    for data in plan.data:
        for seed in range(plan.seeds if role == "test" else 1):
            key = Key("division", data, role, "all", seed)
            record = read_record(plan.results, key)
            if record is None:
                prepared = load(vendor.place(data, seed, role))
                users = prepared.division.users
                content: Record = {
                    **asked,
                    "trainable": prepared.transformer is not None,
                    "users": [
                        {"name": user.name, "train": len(user.train), "test": len(user.test)}
                        for user in users
                    ],
                    "public": len(prepared.division.public),
                    "left_out": list(prepared.division.left_out),
                    "vendor": prepared.vendor,
                }
                write_record(plan.results, key, content)
                record = content
            if other := {name: record[name] for name in asked if record[name] != asked[name]}:
                raise DataError(
                    f"{plan.results}: has records with {_words(other)}, where "
                    f"{_words({name: asked[name] for name in other})} is asked; name another "
                    "folder with --results"
                )
            if role == "test" and seed == 0 and len(record["users"]) < plan.users:
                say(f"{data}: {len(record['users'])} users, of whom it has no more")
            names = tuple(user["name"] for user in record["users"])
            sizes = tuple(user["train"] for user in record["users"])
            divisions.append(_Division(data, seed, role, names, sizes))
            trainable = bool(record["trainable"])
    return divisions, trainable


def _words(asked: Mapping[str, object]) -> str:
    options = {"old": "--old", "new": "--new", "asked": "--users"}
    return ", ".join(f"{options[name]} {value}" for name, value in asked.items())


def _searches(
    plan: Plan, vendor: _Vendor, divisions: Sequence[_Division], methods: Sequence[str]
) -> Iterator[Task]:
    # The long ones first, so that the cores end together.
    for name in sorted(set(methods) - set(FIXED), key=lambda name: name not in TRAINED):
        for division in divisions:
            for user in division.users:
                key = Key("search", division.data, name, user, division.seed)
                yield _task(plan, vendor, jobs.search, division, [key], {})


def _replacements(
    plan: Plan,
    vendor: _Vendor,
    divisions: Sequence[_Division],
    methods: Sequence[str],
    settings: Mapping[str, Mapping[str, Settings]],
) -> Iterator[Task]:
    for name in sorted(methods, key=lambda name: name not in TRAINED):
        for division in divisions:
            if name in TRAINED and division.seed:
                continue
            for user in division.users:
                key = Key("replacement", division.data, name, user, division.seed)
                chosen = settings[division.data]
                yield _task(plan, vendor, jobs.replacement, division, [key], chosen)


def _frontiers(plan: Plan, vendor: _Vendor, divisions: Sequence[_Division]) -> Iterator[Task]:
    for division in divisions:
        for user in division.users:
            keys = [
                Key("frontier", division.data, "fala", user, division.seed, str(passes))
                for passes in BUDGETS
            ]
            yield _task(plan, vendor, jobs.frontier, division, keys, {})


def _ablations(
    plan: Plan,
    vendor: _Vendor,
    divisions: Sequence[_Division],
    settings: Mapping[str, Mapping[str, Settings]],
) -> Iterator[Task]:
    from fala_sim.ablations import variants

    for division in _first(divisions):
        for user in division.users:
            keys = [
                Key("ablation", division.data, "fala-paper", user, 0, variant)
                for variant in variants()
            ]
            yield _task(plan, vendor, jobs.ablation, division, keys, settings[division.data])


def _curves(
    plan: Plan,
    vendor: _Vendor,
    divisions: Sequence[_Division],
    methods: Sequence[str],
    settings: Mapping[str, Mapping[str, Settings]],
) -> Iterator[Task]:
    for division in _first(divisions):
        for name in methods:
            if name in TRAINED:
                continue
            for user, size in zip(division.users, division.sizes, strict=True):
                keys = [
                    Key(
                        "curve", division.data, name, user, division.seed,
                        "all" if count is None else str(count),
                    )
                    for count in SIZES
                    if (count or 0) <= size
                ]  # fmt: skip
                yield _task(plan, vendor, jobs.curve, division, keys, settings[division.data])


def _chains(plan: Plan, vendor: _Vendor, divisions: Sequence[_Division]) -> Iterator[Task]:
    """Old -> another -> new -> back to the old one."""
    if len({plan.old, plan.new, CHAIN_THROUGH}) < 3:
        return
    for division in _first(divisions):
        for user in division.users:
            key = Key("chain", division.data, "fala", user, 0)

            def through(division: _Division = division) -> dict[str, object]:
                names = (CHAIN_THROUGH, plan.new, plan.old)
                places = [vendor.place(division.data, 0, "test", name) for name in names]
                return {"through": places}

            yield _task(plan, vendor, jobs.chain, division, [key], {}, through)


def _profiles(
    plan: Plan, vendor: _Vendor, divisions: Sequence[_Division], trainable: bool
) -> Iterator[Task]:
    """The busiest user of the first data set, on every device: FaLA, and full fine-tuning."""
    from fala_sim.profiles.profile import PROFILES

    division = divisions[0]
    user = division.users[0]
    for method in ("fala", "full") if trainable else ("fala",):
        for found in PROFILES:
            key = Key("profile", division.data, method, user, division.seed, found.name)
            more = partial(dict[str, object], name=found.name)
            yield _task(plan, vendor, jobs.profile, division, [key], {}, more)


def _flops(plan: Plan) -> Iterator[Task]:
    key = Key("flops", "none", "table1", "all", 0)
    job = Job(plan.work, plan.results, key.data, key.method, key.user, key.seed, {})
    yield Task("flops", lambda: partial(jobs.flops, job), [key.path(plan.results)])


def _first(divisions: Sequence[_Division]) -> list[_Division]:
    return [division for division in divisions if division.seed == 0]


def _task(
    plan: Plan,
    vendor: _Vendor,
    function: Callable[..., None],
    division: _Division,
    keys: Sequence[Key],
    settings: Mapping[str, Settings],
    more: Callable[[], Mapping[str, object]] = dict,
) -> Task:
    """One job, which writes the records of some keys that differ in their variants alone."""
    first = keys[0]
    variant = first.variant if len(keys) == 1 else ""
    named = (first.kind, first.data, first.method, variant, first.user, f"seed {first.seed}")

    def make() -> partial[None]:
        place = vendor.place(division.data, division.seed, division.role)
        job = Job(place, plan.results, first.data, first.method, first.user, first.seed, settings)
        return partial(function, job, **more())

    return Task(" ".join(filter(None, named)), make, [key.path(plan.results) for key in keys])
