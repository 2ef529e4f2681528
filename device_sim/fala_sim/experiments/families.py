"""The options of experiments, and the family of the experiments on people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from fala.cli import Named
from fala_sim.data.found import found
from fala_sim.engine.job import Engine, Log
from fala_sim.experiments.options import DATA_DIR, Family, Option, count_option
from fala_sim.experiments.plan import Plan
from fala_sim.playground.releases import BUILT_IN
from fala_sim.records.store import RecordKind


def _methods() -> dict[str, str]:
    """The first line of each method's docstring, by name."""
    from fala_sim.methods.registry import METHODS

    return {
        name: (method.__doc__ or method.title).splitlines()[0] for name, method in METHODS.items()
    }


def data_sets() -> dict[str, str]:
    """The titles of the named data sets, by name."""
    from fala_sim.data.catalogue import CATALOGUE

    return {name: data_set.title for name, data_set in CATALOGUE.items()}


def pretrained() -> dict[str, str]:
    """The titles of the pre-trained backbones, by name."""
    from fala_sim.data.models.catalogue import MODELS

    return {name: model.title for name, model in MODELS.items()}


def _old_backbones() -> dict[str, str]:
    """Backbones that simulated devices may have."""
    return {**pretrained(), **BUILT_IN}


def _new_backbones() -> dict[str, str]:
    """Backbones that may replace them."""
    return {
        **_old_backbones(),
        "tuned:minilm": "minilm, first trained on each data set's public",
        "last:minilm": "minilm, with its own pooling of the last layer in place of three layers",
    }


def names_option(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _data_names(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    from fala_sim.data.location import full_name

    return tuple(map(full_name, names_option(context, option, value)))


def _added(_context: click.Context, _option: click.Parameter, value: Sequence[Path]) -> list[str]:
    """The names of the methods in files, which are added to the others."""
    from fala_sim.methods.method_file import MethodFile
    from fala_sim.methods.registry import add

    return [add(MethodFile.read(path)) for path in value]


def data_option(default: str, about: str) -> Option:
    """The data sets of a run."""
    return click.option(
        "--data", default=default, show_default=True, callback=_data_names,
        type=Named(data_sets, several=True), help=about,
    )  # fmt: skip


def users_option(default: int, note: str = "") -> Option:
    """The number of people of a run."""
    about = (
        "The busiest people, of the half of each data set's people that tables show, whose models "
        f"are compared{note}."
    )
    return count_option("--users", default, about)


def seeds_option(default: int, note: str = "") -> Option:
    """The number of seeds of a run."""
    about = f"How often everything is run, with another seed of divisions and trainings.{note}"
    return count_option("--seeds", default, about)


def new_option(about: str) -> Option:
    """The new backbone of a run, or the one to train."""
    return click.option(
        "--new", default="minilm", show_default=True, help=about,
        type=Named(_new_backbones, files=True),
    )  # fmt: skip


#: The help of ``new_option`` where the backbone is trained.
TO_TRAIN = "The backbone to train: minilm, mpnet, or a Hugging Face folder."


def _run_found(plan: Plan, kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:
    """Run the experiments on people that stand in this folder; see ``Family.run``."""
    from fala_sim.experiments.people import run
    from fala_sim.methods.registry import SHIPPED, find_method

    if plan.method:
        # Beside an added method FaLA is enough to compare; all others would take hours.
        chosen = plan.methods or (SHIPPED,)
        plan = replace(plan, methods=tuple(dict.fromkeys([*chosen, *plan.method])))
    for name in plan.methods:
        find_method(name)  # a mistake in a name ends here, not after an hour
    modules = [module for part in ("", "jobs") for module in found(__package__ or "", part)]
    experiments = [each for module in modules for each in getattr(module, "EXPERIMENTS", ())]
    wanted = [each for each in experiments if not kinds or each.kind in kinds]
    return run(plan, wanted, engine, log)


#: The options of every experiment on people.
PEOPLE_OPTIONS: tuple[Option, ...] = (
    data_option(
        "md-agreement,hs-brexit,movielens",
        "Data sets, by name (`fala-sim data list`), as FORMAT:DIR or rows:FILE.",
    ),
    DATA_DIR,
    users_option(5),
    seeds_option(1, " Methods that train a transformer run on the first only."),
    click.option(
        "--old", default="glove", show_default=True, help="The backbone that devices have.",
        type=Named(_old_backbones, files=True),
    ),
    new_option(
        "The new backbone: a name, a Hugging Face folder, or a bundle. A bundle and minilm-l3 "
        "cannot be trained. tuned:NAME, or tuned:FOLDER, is first trained on each data "
        "set's public rows; last:NAME, or last:FOLDER, pools its last layer, not three."
    ),
)  # fmt: skip

#: The experiments on people, each of which has ``EXPERIMENTS``.
PEOPLE = Family(
    (),
    (
        *PEOPLE_OPTIONS,
        click.option(
            "--methods", default="", callback=names_option, help="Some methods only, by name.",
            type=Named(_methods, several=True),
        ),
        click.option(
            "--method", type=click.Path(path_type=Path), metavar="FILE.py", multiple=True,
            callback=_added, is_eager=True,
            help="Add the method that a file defines, and run it, beside --methods or beside fala.",
        ),
    ),
    _run_found,
    Plan,
)  # fmt: skip
