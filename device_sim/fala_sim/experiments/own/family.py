"""The options of the experiment, and what runs it."""

from __future__ import annotations

from dataclasses import dataclass

import click

from fala.cli import Named
from fala_sim.experiments.families import (
    data_option,
    names_option,
    pretrained,
    seeds_option,
    users_option,
)
from fala_sim.experiments.options import DATA_DIR, Family, run_of
from fala_sim.experiments.plan import Plan
from fala_sim.playground.releases import BUILT_IN
from fala_sim.records.store import RecordKind

#: The kind of its records.
KIND: RecordKind = "own"


def _encoders() -> dict[str, str]:
    """Encoders that an app may have."""
    from fala_sim.experiments.own.encoders import TFIDF

    tfidf = {TFIDF: "scikit-learn's TfidfVectorizer and TruncatedSVD, fitted to the public's texts"}
    return {**tfidf, **pretrained(), **BUILT_IN}


@dataclass(frozen=True, kw_only=True)
class OwnPlan(Plan):
    """The options of a run.

    Attributes:
        olds: The encoders that are replaced, one after another; ``new`` replaces each.
    """

    olds: tuple[str, ...] = ()


OWN = Family(
    (KIND,),
    (
        data_option(
            "md-agreement,crehate,anime",
            "Data sets, by name (`fala-sim data list`), as FORMAT:DIR or rows:FILE.",
        ),
        DATA_DIR,
        users_option(10),
        seeds_option(1),
        click.option(
            "--old", "olds", default="tfidf,glove-6b", show_default=True, callback=names_option,
            type=Named(_encoders, several=True), help="The encoders that the app may have.",
        ),
        click.option(
            "--new", default="minilm", show_default=True,
            type=Named(_encoders), help="The encoder that replaces each.",
        ),
    ),
    run_of("fala_sim.experiments.own.run"),
    OwnPlan,
)  # fmt: skip
