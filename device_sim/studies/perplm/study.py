"""The study's entry in the benchmarks: its kinds of record, and its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fala.cli import Described
from fala_export.recipe.options import Count
from fala_sim.experiments.plan import DataNames, DataPlan, Family, NewBackbone, run_of
from fala_sim.experiments.study import Study

_EXTENTS = {
    "quick": "a slice of the data, for two cores and an hour or two",
    "whole": "all of it",
}


@dataclass(frozen=True, kw_only=True)
class WritersPlan(DataPlan):
    """The options of a run.

    Attributes:
        data: Data sets of people, by name, as FORMAT:DIR or rows:FILE.
        users: Number of users per data set whose models are compared: the busiest people in the
            half of the data set's people that tables show; half as many are new, without a prompt.
        new: The backbone to train: minilm, mpnet, or a Hugging Face folder.
        extent: How much of the data is used.
    """

    data: DataNames = ("md-agreement",)
    users: Count = 12
    new: NewBackbone = "minilm"
    extent: Annotated[str, Described(_EXTENTS)] = "quick"


STUDY = Study(
    "perplm",
    Family(
        ("prompt", "prompt-length", "prompt-training"), WritersPlan, run_of("studies.perplm.plan")
    ),
)
