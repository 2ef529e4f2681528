"""The study's entry in the laboratory: its kinds of record, and its options."""

from __future__ import annotations

from dataclasses import dataclass

import click

from fala.cli import Described
from fala_sim.experiments.families import (
    TO_TRAIN,
    data_option,
    new_option,
    seeds_option,
    users_option,
)
from fala_sim.experiments.options import DATA_DIR, Family, run_of
from fala_sim.experiments.plan import Plan
from fala_sim.experiments.study import Study


@dataclass(frozen=True, kw_only=True)
class WritersPlan(Plan):
    """The options of a run.

    Attributes:
        extent: How much of the data; a name of ``rows.EXTENTS``.
    """

    extent: str = "quick"


STUDY = Study(
    "perplm",
    Family(
        ("prompt", "prompt-length", "prompt-training"),
        (
            data_option(
                "md-agreement", "Data sets of people, by name, as FORMAT:DIR or rows:FILE."
            ),
            DATA_DIR,
            users_option(12, "; half as many are new, without a prompt"),
            seeds_option(1),
            new_option(TO_TRAIN),
            click.option(
                "--extent", default="quick", show_default=True, help="How much of the data.",
                type=Described({
                    "quick": "a slice of the data, for two cores and an hour or two",
                    "whole": "all of it",
                }),
            ),
        ),
        run_of("studies.perplm.plan"),
        WritersPlan,
    ),
)  # fmt: skip
