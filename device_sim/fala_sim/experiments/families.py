"""The options of the experiments on people, and the family of those that stand here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fala.cli import Named
from fala_export.recipe.options import Count, File
from fala_sim.data.found import found
from fala_sim.engine.job import Engine, Log
from fala_sim.experiments.plan import (
    DataNames,
    DataPlan,
    Family,
    NewBackbone,
    RunFamily,
    old_backbones,
)
from fala_sim.records.store import RecordKind


def _methods() -> dict[str, str]:
    """The first line of each method's docstring, by name."""
    from fala_sim.methods.registry import METHODS

    return {
        name: (method.__doc__ or method.title).splitlines()[0] for name, method in METHODS.items()
    }


@dataclass(frozen=True, kw_only=True)
class PeoplePlan(DataPlan):
    """The options of the experiments that replace people's backbone.

    Attributes:
        seeds: How often everything is run, with another seed of divisions and trainings. Methods
            that train a transformer run on the first only.
        old: The backbone that devices have.
        new: The new backbone: a name, a Hugging Face folder, or a bundle. A bundle and minilm-l3
            cannot be trained. tuned:NAME, or tuned:FOLDER, is first trained on each data set's
            public rows; last:NAME, or last:FOLDER, pools its last layer, not three.
        methods: Some methods only, by name.
        method: Add the method that a file defines, and run it, beside --methods or beside fala.
    """

    data: DataNames = ("md-agreement", "hs-brexit", "movielens")
    users: Count = 5
    old: Annotated[str, Named(old_backbones, files=True)] = "glove"
    new: NewBackbone = "minilm"
    methods: Annotated[tuple[str, ...], Named(_methods, several=True)] = ()
    method: tuple[File, ...] = ()


def _run_found(
    plan: PeoplePlan, kinds: Sequence[RecordKind], engine: Engine, log: Log
) -> list[str]:
    """Run the experiments on people that stand in this folder; see ``Family.run``."""
    from fala_sim.experiments.people import run
    from fala_sim.methods.method_file import MethodFile
    from fala_sim.methods.registry import SHIPPED, add, find_method

    if added := [add(MethodFile.read(path)) for path in plan.method]:
        # Beside an added method FaLA is enough to compare; all others would take hours.
        plan = replace(plan, methods=tuple(dict.fromkeys([*(plan.methods or (SHIPPED,)), *added])))
    for name in plan.methods:
        find_method(name)  # a mistake in a name ends here, not after an hour
    modules = [module for part in ("", "jobs") for module in found(__package__ or "", part)]
    experiments = [each for module in modules for each in getattr(module, "EXPERIMENTS", ())]
    wanted = [each for each in experiments if not kinds or each.kind in kinds]
    return run(plan, wanted, engine, log)


#: The experiments on people, each of which has ``EXPERIMENTS``.
PEOPLE = Family((), PeoplePlan, _run_found)


def people_family(kind: RecordKind, run: RunFamily) -> Family:
    """The family of an experiment on people whose methods are fixed."""
    return Family((kind,), PeoplePlan, run, fixed=("methods", "method"))
