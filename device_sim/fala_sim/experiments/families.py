"""The experiments by family: what each makes, and its options on the command line.

What a family runs is imported when it is run: a command that fails early should fail at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import click

from fala.cli.names import Described, Named
from fala_sim import names
from fala_sim.data.commands import data_sets
from fala_sim.engine.task import Engine, Say
from fala_sim.records import KINDS, Kind

#: A click option, as a decorator is made of it.
Option: TypeAlias = "Callable[[Callable[..., None]], Callable[..., None]]"


@dataclass(frozen=True)
class Family:
    """Experiments with the same options.

    Attributes:
        kinds: Of the records that it makes.
        options: On the command line; ``run`` takes them by name.
        run: Makes what is not recorded yet of some kinds: ``run(kinds, engine, say, **options)``.
            It gives one line for each thing that failed.
    """

    kinds: tuple[Kind, ...]
    options: tuple[Option, ...]
    run: Callable[..., list[str]]


def names_of(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _data_names(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    from fala_sim.data.place import full_name

    return tuple(map(full_name, names_of(context, option, value)))


def _data(default: str, what: str) -> Option:
    return click.option(
        "--data", default=default, show_default=True, callback=_data_names,
        type=Named(data_sets, several=True), help=what,
    )  # fmt: skip


def _count(name: str, default: int, what: str) -> Option:
    return click.option(name, type=click.IntRange(1), default=default, show_default=True, help=what)


def _new(what: str) -> Option:
    return click.option(
        "--new", default="minilm", show_default=True, help=what,
        type=Named(names.new_backbones, files=True),
    )  # fmt: skip


_DATA_DIR = click.option(
    "--data-dir", type=click.Path(path_type=Path), envvar="FALA_DATA", show_envvar=True,
    help="Folder of the named data sets. Default: where `fala-sim data get` puts them.",
)  # fmt: skip

#: Where jobs run.
ENGINE: tuple[Option, ...] = (
    click.option(
        "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="cores",
        help="Processes at once; they share the cores.",
    ),
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
        help="Where jobs run: on this machine, or on a Ray cluster.",
    ),
    click.option(
        "--address", help="The Ray cluster's head, HOST:PORT. Default: one of this machine alone.",
    ),
)  # fmt: skip

RESULTS = click.option(
    "--results", type=click.Path(path_type=Path), default=Path("fala-results"), show_default=True,
    help="Folder of the records; what is recorded there is not run again.",
)  # fmt: skip

_TO_TRAIN = "What is trained: minilm, mpnet, or a Hugging Face folder."


def _run_people(
    kinds: Sequence[Kind],
    engine: Engine,
    say: Say,
    *,
    methods: tuple[str, ...],
    **options: Any,  # noqa: ANN401
) -> list[str]:
    from fala_sim.experiments.ablation import plan as ablation
    from fala_sim.experiments.curves import plan as curves
    from fala_sim.experiments.history import plan as history
    from fala_sim.experiments.people import Plan, run
    from fala_sim.experiments.profiles import plan as profiles
    from fala_sim.experiments.replacement import plan as replacement
    from fala_sim.methods.registry import METHODS, find_method

    for name in methods:
        find_method(name)  # a mistake in a name ends here, not after an hour
    rooms = (replacement, ablation, curves, history, profiles)
    experiments = [one for room in rooms for one in room.EXPERIMENTS if one.kind in kinds]
    return run(Plan(methods=methods or tuple(METHODS), **options), experiments, engine, say)


def _run_flops(kinds: Sequence[Kind], engine: Engine, say: Say, *, results: Path) -> list[str]:
    from fala_sim.experiments.replacement.plan import run_flops

    return run_flops(results, engine, say)


def _run_adapters(
    kinds: Sequence[Kind],
    engine: Engine,
    say: Say,
    **options: Any,  # noqa: ANN401
) -> list[str]:
    from fala_sim.experiments.adapters.plan import Plan, run

    return run(Plan(**options), kinds, engine, say)


def _run_prompts(
    kinds: Sequence[Kind],
    engine: Engine,
    say: Say,
    **options: Any,  # noqa: ANN401
) -> list[str]:
    from fala_sim.experiments.prompts.plan import Plan, run

    return run(Plan(**options), kinds, engine, say)


ADAPTERS = Family(
    ("adapter-search", "adapter", "adapter-size", "adapter-init", "adapter-span"),
    (
        _data("cola,mrpc", "Benchmarks, by name (`fala-sim data list`)."),
        _DATA_DIR,
        _count("--seeds", 3, "Trainings of each kind."),
        _new(_TO_TRAIN),
    ),
    _run_adapters,
)
PROMPTS = Family(
    ("prompt", "prompt-length", "prompt-training"),
    (
        _data("md-agreement", "Data sets of people, by name, as FORMAT:DIR or rows:FILE."),
        _DATA_DIR,
        _count("--users", 12, "The writers who have a prompt; half as many come new."),
        _count("--seeds", 1, "Divisions of the data, each with its trainings."),
        _new(_TO_TRAIN),
        click.option(
            "--extent", default="quick", show_default=True, help="How much of the data.",
            type=Described({
                "quick": "a slice of the data, for two cores and an hour or two",
                "whole": "all of it",
            }),
        ),
    ),
    _run_prompts,
)  # fmt: skip
FLOPS = Family(("flops",), (), _run_flops)
PEOPLE = Family(
    tuple(kind for kind in KINDS if kind not in ADAPTERS.kinds + PROMPTS.kinds + FLOPS.kinds),
    (
        _data(
            "md-agreement,hs-brexit,movielens",
            "Data sets, by name (`fala-sim data list`), as FORMAT:DIR or rows:FILE.",
        ),
        _DATA_DIR,
        _count("--users", 5, "The busiest people of each data set, whose models are replaced."),
        _count("--seeds", 1, "Divisions of the data. What trains a transformer is run on the "
               "first."),
        click.option(
            "--old", default="glove", show_default=True, help="The backbone that devices have.",
            type=Named(names.old_backbones, files=True),
        ),
        _new(
            "The backbone that comes: a name, a Hugging Face folder, or a bundle (without the "
            "methods that train it; so is minilm-l3). tuned:NAME, or tuned:FOLDER, is trained on "
            "each data set's public first."
        ),
        click.option(
            "--methods", default="", callback=names_of, help="Some methods only, by name.",
            type=Named(names.methods, several=True),
        ),
    ),
    _run_people,
)  # fmt: skip

FAMILIES = (PEOPLE, FLOPS, ADAPTERS, PROMPTS)


def family_of(kinds: Sequence[Kind]) -> Family:
    """The family that makes some kinds of record."""
    return next(family for family in FAMILIES if kinds[0] in family.kinds)
