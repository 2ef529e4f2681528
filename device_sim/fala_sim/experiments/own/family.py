"""The options of the experiment, and the function that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fala.cli import Named
from fala_export.recipe.options import Count
from fala_sim.experiments.plan import DataNames, DataPlan, Family, old_backbones, run_of
from fala_sim.records.store import RecordKind

#: The kind of its records.
KIND: RecordKind = "own"


def _encoders() -> dict[str, str]:
    """Return the encoders that an app may have."""
    from fala_sim.experiments.own.encoders import TFIDF

    tfidf = {TFIDF: "scikit-learn's TfidfVectorizer and TruncatedSVD, fitted to the public's texts"}
    return {**tfidf, **old_backbones()}


@dataclass(frozen=True, kw_only=True)
class OwnPlan(DataPlan):
    """The options of a run.

    Attributes:
        old: The encoders that the app may have.
        new: The encoder that replaces each of them.
    """

    data: DataNames = ("md-agreement", "crehate", "anime")
    users: Count = 10
    old: Annotated[tuple[str, ...], Named(_encoders, several=True)] = ("tfidf", "glove-6b")
    new: Annotated[str, Named(_encoders)] = "minilm"


OWN = Family((KIND,), OwnPlan, run_of("fala_sim.experiments.own.run"))
