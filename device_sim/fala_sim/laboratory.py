"""What is run for the tables and figures: every method on every user, settings chosen first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fala import DataError
from fala_sim import jobs
from fala_sim.data_sets import Role, find_folder
from fala_sim.jobs import SIZES, Job
from fala_sim.methods.catalogue import CATALOGUE, FIXED, TRAINED
from fala_sim.methods.method import Settings
from fala_sim.records import Key, Kind, read_records
from fala_sim.releases import Source, find_source, load, prepare
from fala_sim.runner import Task, run_tasks

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
    data: str
    seed: int
    role: Role
    place: Path
    users: tuple[str, ...]
    sizes: tuple[int, ...]


def run(plan: Plan, kinds: Sequence[Kind], say: Say) -> list[str]:
    """Run what some kinds of record need, and is not recorded yet.

    Args:
        plan: What is asked.
        kinds: Kinds of record.
        say: Told of progress.

    Returns:
        One line for each job that failed.

    Raises:
        DataError: If the data or a backbone cannot be used.
    """
    plan.work.mkdir(parents=True, exist_ok=True)
    (plan.work / ".gitignore").write_text("*\n", encoding="utf-8")
    failures: list[str] = []
    if "flops" in kinds:
        failures += run_tasks(_flops(plan), jobs=1, say=say)
    if set(kinds) == {"flops"}:
        return failures
    old, new = (find_source(name, plan.work, say) for name in (plan.old, plan.new))
    methods = [name for name in plan.methods if name not in TRAINED or new.transformer is not None]
    if missing := set(plan.methods) - set(methods):
        say(
            f"{plan.new} is a bundle only: {', '.join(sorted(missing))} train a transformer and "
            "are left out; name its Hugging Face folder with --new to have them"
        )
    tested = _divisions(plan, old, new, "test", say)
    if set(kinds) & {"search", "replacement", "curve", "ablation"}:
        searched = _divisions(plan, old, new, "validation", say)
        failures += run_tasks(_searches(plan, searched, methods), jobs=plan.jobs, say=say)
    settings = {data: chosen_settings(plan.results, data) for data in plan.data}
    tasks: list[Task] = []
    if "replacement" in kinds:
        tasks += _replacements(plan, tested, methods, settings)
    if "ablation" in kinds:
        tasks += _ablations(plan, tested, settings)
    if "curve" in kinds:
        tasks += _curves(plan, tested, methods, settings)
    if "chain" in kinds:
        tasks += _chains(plan, tested, old, new, say)
    failures += run_tasks(tasks, jobs=plan.jobs, say=say)
    if "profile" in kinds:
        # One by one: they measure this machine's speed, and take their share of its cores.
        failures += run_tasks(_profiles(plan, tested, new), jobs=1, say=say)
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
                auc, accuracy = one["scores"]["auc"], one["scores"]["accuracy"]
                score = accuracy if auc is None else auc
                method.setdefault(repr(one["settings"]), (one["settings"], []))[1].append(score)
    return {
        name: max(options.values(), key=lambda option: float(np.mean(option[1])))[0]
        for name, options in tried.items()
    }


def _divisions(plan: Plan, old: Source, new: Source, role: Role, say: Say) -> list[_Division]:
    divisions = []
    for data in plan.data:
        for seed in range(plan.seeds if role == "test" else 1):
            place = prepare(
                data, find_folder(plan.data_dir), plan.work, old, new,
                users=plan.users, seed=seed, role=role, say=say,
            )  # fmt: skip
            users = load(place).division.users
            if role == "test" and seed == 0 and len(users) < plan.users:
                say(f"{data}: {len(users)} users, of whom it has no more")
            names = tuple(user.name for user in users)
            sizes = tuple(len(user.train) for user in users)
            divisions.append(_Division(data, seed, role, place, names, sizes))
    return divisions


def _searches(plan: Plan, divisions: Sequence[_Division], methods: Sequence[str]) -> Iterator[Task]:
    # The long ones first, so that the cores end together.
    for name in sorted(set(methods) - set(FIXED), key=lambda name: name not in TRAINED):
        for division in divisions:
            for user in division.users:
                job = _job(plan, "search", division, name, user, {})
                key = Key("search", division.data, name, user, division.seed)
                yield _task(plan, jobs.search, job, [key])


def _replacements(
    plan: Plan,
    divisions: Sequence[_Division],
    methods: Sequence[str],
    settings: dict[str, dict[str, Settings]],
) -> Iterator[Task]:
    for name in sorted(methods, key=lambda name: name not in TRAINED):
        for division in divisions:
            if name in TRAINED and division.seed:
                continue
            for user in division.users:
                job = _job(plan, "replacement", division, name, user, settings[division.data])
                key = Key("replacement", division.data, name, user, division.seed)
                yield _task(plan, jobs.replacement, job, [key])


def _ablations(
    plan: Plan, divisions: Sequence[_Division], settings: dict[str, dict[str, Settings]]
) -> Iterator[Task]:
    from fala_sim.ablations import variants

    for division in divisions:
        if division.seed:
            continue
        for user in division.users:
            job = _job(plan, "ablation", division, "", user, settings[division.data])
            keys = [
                Key("ablation", division.data, "fala-paper", user, 0, variant)
                for variant in variants()
            ]
            yield _task(plan, jobs.ablation, job, keys)


def _curves(
    plan: Plan,
    divisions: Sequence[_Division],
    methods: Sequence[str],
    settings: dict[str, dict[str, Settings]],
) -> Iterator[Task]:
    for division in divisions:
        if division.seed:
            continue
        for name in methods:
            if name in TRAINED:
                continue
            for user, size in zip(division.users, division.sizes, strict=True):
                job = _job(plan, "curve", division, name, user, settings[division.data])
                keys = [
                    Key(
                        "curve", division.data, name, user, division.seed,
                        "all" if count is None else str(count),
                    )
                    for count in SIZES
                    if (count or 0) <= size
                ]  # fmt: skip
                yield _task(plan, jobs.curve, job, keys)


def _chains(
    plan: Plan, divisions: Sequence[_Division], old: Source, new: Source, say: Say
) -> Iterator[Task]:
    """Old -> another -> new -> back to the old one."""
    another = find_source(CHAIN_THROUGH, plan.work, say)
    if len({source.name for source in (old, new, another)}) < 3:
        return
    for division in divisions:
        if division.seed:
            continue
        folder = find_folder(plan.data_dir)
        through = [
            prepare(
                division.data, folder, plan.work, old, source,
                users=plan.users, seed=0, role="test", say=say,
            )
            for source in (another, new, old)
        ]  # fmt: skip
        for user in division.users:
            job = _job(plan, "chain", division, "fala", user, {})
            key = Key("chain", division.data, "fala", user, 0)
            yield _task(plan, partial(jobs.chain, through=through), job, [key])


def _profiles(plan: Plan, divisions: Sequence[_Division], new: Source) -> Iterator[Task]:
    """The busiest user of the first data set, on every device: FaLA, and full fine-tuning."""
    from fala_sim.profiles.profile import PROFILES

    division = divisions[0]
    user = division.users[0]
    for method in ("fala", "full") if new.transformer is not None else ("fala",):
        for found in PROFILES:
            job = _job(plan, "profile", division, method, user, {})
            key = Key("profile", division.data, method, user, division.seed, found.name)
            yield _task(plan, partial(jobs.profile, name=found.name), job, [key])


def _flops(plan: Plan) -> Iterator[Task]:
    job = Job("flops", plan.work, plan.results, "none", "table1", "all", 0, {})
    yield _task(plan, jobs.flops, job, [Key("flops", "none", "table1", "all", 0)])


def _job(
    plan: Plan,
    kind: Kind,
    division: _Division,
    method: str,
    user: str,
    settings: dict[str, Settings],
) -> Job:
    return Job(
        kind, division.place, plan.results, division.data, method, user, division.seed, settings
    )


def _task(plan: Plan, function: Callable[..., None], job: Job, keys: Sequence[Key]) -> Task:
    named = (job.kind, job.data, job.method, keys[0].variant if len(keys) == 1 else "", job.user)
    label = " ".join([*filter(None, named), f"seed {job.seed}"])
    paths = [key.path(plan.results) for key in keys]
    return Task(label, partial(function, job), paths)


def check_methods(names: Sequence[str]) -> None:
    """Check names of methods.

    Raises:
        DataError: If one is not known.
    """
    for name in names:
        if name not in CATALOGUE:
            raise DataError(f"no method {name!r}; one of {', '.join(CATALOGUE)}")
