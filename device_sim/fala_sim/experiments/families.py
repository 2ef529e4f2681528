"""The experiments on people in this folder, as one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fala_sim.data.found import found
from fala_sim.engine.job import Engine, Log
from fala_sim.experiments.plan import Family, PeoplePlan
from fala_sim.records.store import RecordKind


def _run_found(
    plan: PeoplePlan, kinds: Sequence[RecordKind], engine: Engine, log: Log
) -> list[str]:
    """Run the experiments on people in this folder; see ``Family.run``."""
    from fala_sim.experiments.people import run
    from fala_sim.methods.method_file import MethodFile
    from fala_sim.methods.registry import SHIPPED, add, find_method

    if added := [add(MethodFile.read(path)) for path in plan.method]:
        # FaLA is enough to compare with an added method; all other methods would take hours.
        plan = replace(plan, methods=tuple(dict.fromkeys([*(plan.methods or (SHIPPED,)), *added])))
    for name in plan.methods:
        find_method(name)  # so that a mistake in a name fails immediately, not after an hour
    modules = [module for part in ("", "jobs") for module in found(__package__ or "", part)]
    experiments = [each for module in modules for each in getattr(module, "EXPERIMENTS", ())]
    wanted = [each for each in experiments if not kinds or each.kind in kinds]
    return run(plan, wanted, engine, log)


#: The experiments on people, each of which has ``EXPERIMENTS``.
PEOPLE = Family((), PeoplePlan, _run_found)
