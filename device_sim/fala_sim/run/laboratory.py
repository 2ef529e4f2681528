"""What is run for the tables and figures: every method on every user, settings chosen first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from fala import DataError, FalaError
from fala_sim.data.place import is_benchmark
from fala_sim.data_sets import Role
from fala_sim.engine.local import LocalEngine
from fala_sim.engine.task import Engine, Say, Task
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import FIXED, METHODS, TRAINED
from fala_sim.metric.statistics import selection_score
from fala_sim.records import Key, Kind, read_record, read_records
from fala_sim.run.adapters import ADAPTER_KINDS, run_adapters
from fala_sim.run.divisions import Participants, participants
from fala_sim.run.plan import OtherPlanError, Plan, Vendor
from fala_sim.run.prompts import PROMPT_KINDS, TRAINING, run_prompts
from fala_sim.run.runner import run_tasks
from fala_sim.run.tasks import (
    ABLATED,
    ablations,
    chains,
    curves,
    flops,
    frontiers,
    profiles,
    replacements,
    searches,
)


def run(plan: Plan, kinds: Sequence[Kind], engine: Engine, say: Say) -> list[str]:
    """Run what some kinds of record need, and is not recorded yet.

    Args:
        plan: What is asked.
        kinds: Kinds of record.
        engine: Runs the jobs.
        say: Told of progress.

    Returns:
        One line for each data set that cannot be used, and for each job that failed; everything
        else was run.

    Raises:
        DataError: If a backbone cannot be used, or the folder holds the records of another plan.
    """
    plan.work.mkdir(parents=True, exist_ok=True)
    (plan.work / ".gitignore").write_text("*\n", encoding="utf-8")
    failures: list[str] = []
    if "flops" in kinds:
        failures += run_tasks(flops(plan), plan.results, engine=engine, say=say)
    if set(kinds) == {"flops"}:
        return failures
    if prompts := [kind for kind in kinds if kind in PROMPT_KINDS]:
        if set(plan.methods) != set(METHODS):
            raise DataError("--methods: what prompts are compared with replaces no backbone")
        failures += run_prompts(plan, prompts, engine, say)
        kinds = [kind for kind in kinds if kind not in (*PROMPT_KINDS, TRAINING)]
        if not kinds:
            return failures
    plan, kinds, failed = _benchmarks(plan, kinds, engine, say)
    failures += failed
    if not kinds:
        return failures
    vendor = Vendor(plan, say)
    methods = _methods(plan, vendor, say)
    tested, failed = _divisions(plan, vendor, "test", say)
    failures += failed
    good = list(dict.fromkeys(division.data for division in tested))
    settings, failed = _settings(plan, vendor, good, _tuned(kinds, methods), engine, say)
    failures += failed
    tasks: list[Task] = []
    if "replacement" in kinds:
        tasks += replacements(plan, vendor, tested, methods, settings)
    if "frontier" in kinds:
        tasks += frontiers(plan, vendor, tested)
    if "ablation" in kinds:
        tasks += ablations(plan, vendor, tested, settings)
    if "curve" in kinds:
        tasks += curves(plan, vendor, tested, methods, settings)
    if "chain" in kinds:
        tasks += chains(plan, vendor, tested)
    failures += run_tasks(tasks, plan.results, engine=engine, say=say)
    if "profile" in kinds:
        # One by one: they measure this machine's speed, and take their share of its cores.
        trainable = vendor.source(plan.new).transformer is not None
        measured = profiles(plan, vendor, tested, trainable)
        failures += run_tasks(measured, plan.results, engine=LocalEngine(1), say=say)
    return failures


def _benchmarks(
    plan: Plan, kinds: Sequence[Kind], engine: Engine, say: Say
) -> tuple[Plan, Sequence[Kind], list[str]]:
    """Run what is of benchmarks; the plan and the kinds that are left, and what failed.

    A benchmark has no people, so it is for adapters alone, and adapters are for nothing else.
    """
    tried = [kind for kind in kinds if kind in ADAPTER_KINDS]
    rest = [kind for kind in kinds if kind not in ADAPTER_KINDS]
    people = tuple(name for name in plan.data if not is_benchmark(name))
    benchmarks = [name for name in plan.data if name not in people]
    failures: list[str] = []
    if not rest and set(plan.methods) != set(METHODS):
        raise DataError("--methods: what adapters are compared with replaces no backbone")
    if tried and (benchmarks or not rest):
        failures += run_adapters(plan, tried, engine, say)
    elif rest and not tried:
        failures += [
            f"{name}: a benchmark has no people; `fala-sim table adapters` is of it"
            for name in benchmarks
        ]
    return replace(plan, data=people), rest if people or not benchmarks else [], failures


def chosen_settings(results: Path, data: str) -> dict[str, Settings]:
    """The settings of every searched method: those with the best mean score of validation users.

    The score is AUC; where validation users lack one, accuracy. A method without any score has no
    settings.

    Args:
        results: The run's folder.
        data: The data set.
    """
    tried: dict[str, dict[str, tuple[Settings, list[float]]]] = {}
    for record in read_records(results, "search"):
        if record["data"] == data:
            method = tried.setdefault(record["method"], {})
            for one in record["tried"]:
                if (score := selection_score(one)) is not None:
                    found = method.setdefault(repr(one["settings"]), (one["settings"], []))
                    found[1].append(score)
    return {
        name: max(options.values(), key=lambda option: fmean(option[1]))[0]
        for name, options in tried.items()
        if options
    }


def _methods(plan: Plan, vendor: Vendor, say: Say) -> list[str]:
    """The methods that can be run: without a transformer's folder nothing trains it."""
    vendor.source(plan.old)  # a mistake in a name ends here, before anything is prepared
    trainable = vendor.source(plan.new).transformer is not None
    methods = [name for name in plan.methods if name not in TRAINED or trainable]
    if missing := set(plan.methods) - set(methods):
        say(
            f"{plan.new} is a bundle only: {', '.join(sorted(missing))} train a transformer and "
            "are left out; name its Hugging Face folder with --new to have them"
        )
    return methods


def _tuned(kinds: Sequence[Kind], methods: Sequence[str]) -> list[str]:
    """The methods whose settings these kinds of record need."""
    needed: list[str] = []
    if set(kinds) & {"search", "replacement", "curve"}:
        needed += [name for name in methods if name not in FIXED]
    if "ablation" in kinds and ABLATED not in needed:
        # The ablations are all of one method, whichever others were asked for.
        needed.append(ABLATED)
    return needed


def _divisions(
    plan: Plan, vendor: Vendor, role: Role, say: Say, data: Sequence[str] | None = None
) -> tuple[list[Participants], list[str]]:
    """Who takes part, of every data set that can be used, and a line for each that cannot."""
    divisions: list[Participants] = []
    failures: list[str] = []
    for name in plan.data if data is None else data:
        found, failure = _data_set(plan, vendor, name, role, say)
        divisions += found
        failures += failure
    return divisions, failures


def _data_set(
    plan: Plan, vendor: Vendor, data: str, role: Role, say: Say
) -> tuple[list[Participants], list[str]]:
    seeds = range(plan.seeds if role == "test" else 1)
    try:
        return [participants(plan, vendor, data, role, seed, say) for seed in seeds], []
    except OtherPlanError:
        raise
    except FalaError as error:
        say(f"{data}: left out: {error}")
        return [], [f"{data}: {error}"]


def _settings(
    plan: Plan,
    vendor: Vendor,
    data: Sequence[str],
    methods: Sequence[str],
    engine: Engine,
    say: Say,
) -> tuple[dict[str, dict[str, Settings]], list[str]]:
    """Search what is not searched yet; the settings by data set and method, and what failed.

    A method of which a search failed has no settings: those of the remaining validation users
    alone would stay for good, since what is recorded is not run again.
    """
    if not methods:
        return {name: {} for name in data}, []
    searched, failures = _divisions(plan, vendor, "validation", say, data)
    tasks = searches(plan, vendor, searched, methods)
    failures += run_tasks(tasks, plan.results, engine=engine, say=say)
    settings: dict[str, dict[str, Settings]] = {name: {} for name in data}
    for division in searched:
        chosen = chosen_settings(plan.results, division.data)
        complete = {
            name: chosen[name]
            for name in methods
            if name in chosen and not any(_missing(plan, division, name))
        }
        settings[division.data] = complete
        if unset := [name for name in methods if name not in complete]:
            failures.append(
                f"{division.data}: {', '.join(unset)}: not run without settings; see why their "
                "search failed"
            )
    return settings, failures


def _missing(plan: Plan, division: Participants, method: str) -> Iterator[str]:
    """The validation users on whom a method was not searched."""
    for user in division.users:
        key = Key("search", division.data, method, user, division.seed)
        if read_record(plan.results, key) is None:
            yield user
