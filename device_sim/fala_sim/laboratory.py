"""What is run for the tables and figures: every method on every user, settings chosen first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from fala import DataError
from fala_sim.data.place import check_digest
from fala_sim.data_sets import Role
from fala_sim.methods.catalogue import TRAINED
from fala_sim.methods.method import Settings
from fala_sim.plan import Participants, Plan, Say, Vendor
from fala_sim.records import Key, Kind, Record, read_record, read_records, write_record
from fala_sim.releases import load
from fala_sim.runner import run_tasks
from fala_sim.statistics import selection_score
from fala_sim.tasks import (
    ablations,
    chains,
    curves,
    flops,
    frontiers,
    profiles,
    replacements,
    searches,
)


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
    vendor = Vendor(plan, say)
    failures: list[str] = []
    if "flops" in kinds:
        failures += run_tasks(flops(plan), jobs=1, say=say)
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
        tasks = list(searches(plan, vendor, searched, methods))
        failures += run_tasks(tasks, jobs=plan.jobs, say=say)
    settings = {data: chosen_settings(plan.results, data) for data in plan.data}
    tasks = []
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
    failures += run_tasks(tasks, jobs=plan.jobs, say=say)
    if "profile" in kinds:
        # One by one: they measure this machine's speed, and take their share of its cores.
        failures += run_tasks(profiles(plan, vendor, tested, trainable), jobs=1, say=say)
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


def _divisions(plan: Plan, vendor: Vendor, role: Role, say: Say) -> tuple[list[Participants], bool]:
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
                    "digest": prepared.division.digest,
                }
                write_record(plan.results, key, content)
                record = content
            check_digest(data, plan.data_dir, record.get("digest"), plan.results)
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
            divisions.append(Participants(data, seed, role, names, sizes))
            trainable = bool(record["trainable"])
    return divisions, trainable


def _words(asked: Mapping[str, object]) -> str:
    options = {"old": "--old", "new": "--new", "asked": "--users"}
    return ", ".join(f"{options[name]} {value}" for name, value in asked.items())
