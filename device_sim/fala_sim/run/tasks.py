"""The jobs of a run as tasks: which records each writes, and how it is made when its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fala_sim.engine.task import Call, Needs, Task
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import FIXED, TRAINED
from fala_sim.records import Key, recorded
from fala_sim.run import jobs
from fala_sim.run.divisions import Participants
from fala_sim.run.jobs import BUDGETS, SIZES, Job
from fala_sim.run.made import Giving
from fala_sim.run.plan import Plan, Vendor
from fala_sim.run.releases import inputs_of

#: Whose ablations are run.
ABLATED = "fala-paper"

#: The backbones of a chain of three replacements, beside the old and the new one.
CHAIN_THROUGH = "bert"


def searches(
    plan: Plan, vendor: Vendor, divisions: Sequence[Participants], methods: Sequence[str]
) -> Iterator[Task]:
    """Every tuned method on every validation user, the long ones first."""
    # The long ones first, so that the cores end together.
    for name in sorted(methods, key=lambda name: name not in TRAINED):
        for division in divisions:
            for user in division.users:
                key = Key("search", division.data, name, user, division.seed)
                yield _task(plan, vendor, jobs.search, division, [key], {})


def replacements(
    plan: Plan,
    vendor: Vendor,
    divisions: Sequence[Participants],
    methods: Sequence[str],
    settings: Mapping[str, Mapping[str, Settings]],
) -> Iterator[Task]:
    """Every method that has its settings on every test user."""
    for name in sorted(methods, key=lambda name: name not in TRAINED):
        for division in divisions:
            if (name in TRAINED and division.seed) or not _set(name, settings[division.data]):
                continue
            for user in division.users:
                key = Key("replacement", division.data, name, user, division.seed)
                chosen = settings[division.data]
                yield _task(plan, vendor, jobs.replacement, division, [key], chosen)


def frontiers(plan: Plan, vendor: Vendor, divisions: Sequence[Participants]) -> Iterator[Task]:
    """Our method at every budget, on every test user."""
    for division in divisions:
        for user in division.users:
            keys = [
                Key("frontier", division.data, "fala", user, division.seed, str(passes))
                for passes in BUDGETS
            ]
            yield _task(plan, vendor, jobs.frontier, division, keys, {})


def ablations(
    plan: Plan,
    vendor: Vendor,
    divisions: Sequence[Participants],
    settings: Mapping[str, Mapping[str, Settings]],
) -> Iterator[Task]:
    """The paper's own ablations, on the first division."""
    from fala_sim.run.ablations import variants

    for division in _first(divisions):
        if not _set(ABLATED, settings[division.data]):
            continue
        for user in division.users:
            keys = [
                Key("ablation", division.data, ABLATED, user, 0, variant) for variant in variants()
            ]
            yield _task(plan, vendor, jobs.ablation, division, keys, settings[division.data])


def curves(
    plan: Plan,
    vendor: Vendor,
    divisions: Sequence[Participants],
    methods: Sequence[str],
    settings: Mapping[str, Mapping[str, Settings]],
) -> Iterator[Task]:
    """Every method that trains no transformer with few examples, on the first division."""
    for division in _first(divisions):
        for name in methods:
            if name in TRAINED or not _set(name, settings[division.data]):
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


def chains(plan: Plan, vendor: Vendor, divisions: Sequence[Participants]) -> Iterator[Task]:
    """Old -> another -> new -> back to the old one."""
    if len({plan.old, plan.new, CHAIN_THROUGH}) < 3:
        return
    for division in _first(divisions):
        for user in division.users:
            key = Key("chain", division.data, "fala", user, 0)

            def through(division: Participants = division) -> dict[str, Any]:
                names = (CHAIN_THROUGH, plan.new, plan.old)
                places = [vendor.place(division.data, 0, "test", name) for name in names]
                return {"through": places}

            yield _task(plan, vendor, jobs.chain, division, [key], {}, through)


def profiles(
    plan: Plan, vendor: Vendor, divisions: Sequence[Participants], trainable: bool
) -> Iterator[Task]:
    """The busiest user of the first data set, on every device: FaLA, and full fine-tuning."""
    from fala_sim.profiles.profile import PROFILES

    if not divisions:
        return
    division = divisions[0]
    user = division.users[0]
    for method in ("fala", "full") if trainable else ("fala",):
        for found in PROFILES:
            key = Key("profile", division.data, method, user, division.seed, found.name)
            more = partial(dict[str, Any], name=found.name)
            yield _task(plan, vendor, jobs.profile, division, [key], {}, more)


def flops(plan: Plan) -> Iterator[Task]:
    """The paper's Table 1."""
    key = Key("flops", "none", "table1", "all", 0)
    job = Job(plan.work, key.data, key.method, key.user, key.seed, {})
    call = Call(partial(jobs.flops, job))
    yield Task("flops", lambda: call, partial(recorded, plan.results, key), Needs(memory=4 * 2**30))


def _set(name: str, settings: Mapping[str, Settings]) -> bool:
    """Whether a method has what it is run with."""
    return name in FIXED or name in settings


def _first(divisions: Sequence[Participants]) -> list[Participants]:
    return [division for division in divisions if division.seed == 0]


def _task(
    plan: Plan,
    vendor: Vendor,
    function: Callable[..., Giving],
    division: Participants,
    keys: Sequence[Key],
    settings: Mapping[str, Settings],
    more: Callable[[], Mapping[str, Any]] = dict,
) -> Task:
    """One job, which gives the records of some keys that differ in their variants alone."""
    first = keys[0]
    variant = first.variant if len(keys) == 1 else ""
    named = (first.kind, first.data, first.method, variant, first.user, f"seed {first.seed}")

    def make() -> Call:
        place = vendor.place(division.data, division.seed, division.role)
        there = frozenset(key for key in keys if recorded(plan.results, key))
        job = Job(place, first.data, first.method, first.user, first.seed, settings, there)
        given = more()
        places = [place, *given.get("through", ())]
        return Call(partial(function, job, **given), partial(inputs_of, places, first.method))

    def done() -> bool:
        return all(recorded(plan.results, key) for key in keys)

    needs = Needs(memory=(4 if first.method in TRAINED else 1) * 2**30)
    return Task(" ".join(filter(None, named)), make, done, needs)
