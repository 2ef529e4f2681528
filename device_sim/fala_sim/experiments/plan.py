"""The options of runs, as dataclasses, and families of experiments with the same options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import click

from fala.cli import Named
from fala_export.recipe.options import Count, File, FileOrFolder, Only, Options

if TYPE_CHECKING:
    from fala_sim.engine.job import Engine, Log
    from fala_sim.records.store import RecordKind

#: Function that makes the missing records of some kinds, or of all kinds if none is named, by a
#: plan. It returns a line for each failure.
RunFamily: TypeAlias = "Callable[[Any, Sequence[RecordKind], Engine, Log], list[str]]"


def data_sets() -> dict[str, str]:
    """Return the titles of the named data sets, by name."""
    from fala_sim.data.catalogue import CATALOGUE

    return {name: data_set.title for name, data_set in CATALOGUE.items()}


def pretrained() -> dict[str, str]:
    """Return the titles of the pre-trained backbones, by name."""
    from fala_sim.data.models.catalogue import MODELS

    return {name: model.title for name, model in MODELS.items()}


def old_backbones() -> dict[str, str]:
    """Return the backbones that simulated devices may have."""
    from fala_sim.playground.releases import BUILT_IN

    return {**pretrained(), **BUILT_IN}


def _new_backbones() -> dict[str, str]:
    """Return the backbones that may replace them."""
    return {
        **old_backbones(),
        "tuned:minilm": "minilm, first trained on each data set's public",
        "last:minilm": "minilm, with its own pooling of the last layer instead of three layers",
    }


def _methods() -> dict[str, str]:
    """Return the first line of each method's docstring, by name."""
    from fala_sim.methods.registry import METHODS

    return {
        name: (method.__doc__ or method.title).splitlines()[0] for name, method in METHODS.items()
    }


class _DataSets(Named):
    """Names of data sets; folders are given with their absolute path."""

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401
        """Return the names."""
        from fala_sim.data.location import full_name

        return tuple(map(full_name, super().convert(value, param, ctx)))


DataNames: TypeAlias = Annotated[tuple[str, ...], _DataSets(data_sets, several=True)]
NewBackbone: TypeAlias = Annotated[str, Named(_new_backbones, files=True)]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of a run; the options of a family are fields of a subclass.

    Attributes:
        results: The run's folder: records, tables, and a work folder that may be deleted.
    """

    results: Path

    def work(self) -> Path:
        """Return the folder of a run's intermediate files; it may be deleted."""
        # The path is absolute, because files in the folder contain paths and the run may be resumed
        # from another folder.
        work = self.results.absolute() / "work"
        work.mkdir(parents=True, exist_ok=True)
        (work / ".gitignore").write_text("*\n", encoding="utf-8")
        return work


@dataclass(frozen=True, kw_only=True)
class DataPlan(Plan):
    """The options of a run on people.

    Attributes:
        data: Data sets, by name (`fala-sim data list`), as FORMAT:DIR or rows:FILE.
        data_dir: Folder of the named data sets (default: FALA_DATA, or the folder of `fala-sim data
            get`).
        users: Number of users per data set whose models are compared: the busiest people in the
            half of the data set's people that tables show.
        seeds: Number of times that everything is run, each with another seed of divisions and
            trainings.
    """

    data: DataNames = ()
    data_dir: FileOrFolder | None = None
    users: Count = 1
    seeds: Count = 1


@dataclass(frozen=True, kw_only=True)
class PeoplePlan(DataPlan):
    """The options of the experiments that replace people's backbone.

    Attributes:
        seeds: Number of times that everything is run, each with another seed of divisions and
            trainings. Methods that train a transformer run with the first seed only.
        old: The backbone that devices have.
        new: The new backbone: a name, a Hugging Face folder, or a bundle. A bundle and minilm-l3
            cannot be trained. tuned:NAME, or tuned:FOLDER, is first trained on each data set's
            public rows; last:NAME, or last:FOLDER, pools its last layer instead of three.
        methods: Run only these methods, by name.
        trained_users: Number of users per data set, and of the people who choose settings, for the
            methods that train a transformer; default: as many as for the others.
        method: Add the method that a file defines, and run it, beside --methods or beside fala.
    """

    data: DataNames = ("md-agreement", "hs-brexit", "movielens")
    users: Count = 5
    old: Annotated[str, Named(old_backbones, files=True)] = "glove"
    new: NewBackbone = "minilm"
    methods: Annotated[tuple[str, ...], Named(_methods, several=True)] = ()
    trained_users: Count | None = None
    method: tuple[File, ...] = ()


@dataclass(frozen=True)
class Family:
    """Experiments with the same options.

    Attributes:
        kinds: Kinds of its records, in the order in which they are made; empty for the experiments
            on people, which are found.
        plan: Dataclass of the options. A family without options needs no data.
        run: Function that makes the records.
        fixed: Fields of the plan that are not options.
    """

    kinds: tuple[RecordKind, ...]
    plan: type[Plan]
    run: RunFamily
    fixed: tuple[str, ...] = ()

    def options(self) -> Iterator[click.Parameter]:
        """Yield the plan's fields as command-line options, without the folder of the records."""
        hidden = {"results", *self.fixed}
        names = [field.name for field in fields(self.plan) if field.name not in hidden]
        return Options(self.plan, Only(*names)).parameters()


def people_family(kind: RecordKind, run: RunFamily) -> Family:
    """Return the family of an experiment on people whose methods are fixed."""
    return Family((kind,), PeoplePlan, run, fixed=("methods", "trained_users", "method"))


def run_of(module: str) -> RunFamily:
    """Return the ``run`` of a module, which is imported only when ``run`` is called.

    A command with a mistake therefore fails before anything heavy is loaded.
    """

    def run(plan: Any, kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:  # noqa: ANN401
        failures: list[str] = import_module(module).run(plan, kinds, engine, log)
        return failures

    return run
