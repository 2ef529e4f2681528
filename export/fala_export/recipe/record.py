"""Read what a manifest says about a release's training, as a typed record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fala.bundle.reading import Bundle

#: A detail of a head that is fitted to all rows of a file without splits: its rows cannot measure a
#: device with such a release.
EVERY_ROW = "every_row"


@dataclass(frozen=True)
class TrainingRecord:
    """The facts of a training; a fact is empty if the unvalidated manifest lacks it.

    Attributes:
        trained: Whether the backbone was trained together with its head.
        history: The history of the training, even if the trained model lost against the frozen
            backbone.
        digest: Digest of the public rows.
        divided_by: How the rows were divided: ``"users"``, ``"documents"``, ``"cross-fitting"``, or
            a benchmark's own division.
        recipe: Everything that the training depends on, by readable names.
        seed: Seed with which the rows were divided.
        part: The part of a model that a task trains, with its settings.
        every_row: Whether the head is fitted to all rows of a file without splits.
        rows: Number of rows to train on.
        names_users: Whether any row names a user.
        fitted_on: Numbers of ``rows`` and ``documents`` that the head is fitted to, and
            ``of_rows``.
        words: Details of the fit of the n-grams.
        penalties: Penalties of the head, by block; empty if they must be chosen again.
        candidates: The rows of the table of candidates.
        chosen: Name of the candidate that is released.
        figures: Figures of each model.
        held_out: Figures of the candidates on held-out rows.
    """

    trained: bool
    history: Mapping[str, Any]
    digest: str
    divided_by: str
    recipe: Mapping[str, Any]
    seed: int
    part: Mapping[str, Any]
    every_row: bool
    rows: int
    names_users: bool
    fitted_on: Mapping[str, int]
    words: Mapping[str, Any]
    penalties: tuple[float, ...]
    candidates: Sequence[Mapping[str, Any]]
    chosen: str
    figures: Mapping[str, Any]
    held_out: Mapping[str, Any]

    @classmethod
    def of(cls, bundle: Bundle) -> TrainingRecord:
        """Read the record of a release."""
        return cls.read(bundle.manifest.details.get("training"))

    @classmethod
    def read(cls, details: object) -> TrainingRecord:
        """Read a manifest's ``training``, or what a command returns of it."""
        training = _table(details)
        # A training that lost against the frozen backbone is recorded as tried.
        run = _table(training.get("tried")) or training
        recipe, data = _table(run.get("recipe")), _table(training.get("data"))
        parts = [_table(data.get(name)) for name in ("training", "validation", "held_out")]
        words = _table(training.get("words"))
        penalties = words.get("penalties")
        penalties = penalties if isinstance(penalties, list) else []
        valid = all(isinstance(each, float) and each > 0 for each in penalties)
        return cls(
            trained="history" in training,
            history=_table(run.get("history")),
            digest=str(data.get("digest", "")),
            divided_by=str(training.get("divided_by", "")),
            recipe=recipe,
            seed=recipe.get("seed", 0),
            part=_table(recipe.get("method")),
            every_row=training.get(EVERY_ROW) is True,
            rows=parts[0].get("rows", 0),
            names_users=any(part.get("users") for part in parts),
            fitted_on=_table(training.get("fitted_on")),
            words=words,
            penalties=tuple(penalties) if valid else (),
            candidates=training.get("candidates", ()),
            chosen=training.get("chosen", ""),
            figures=_table(training.get("figures")),
            held_out=_table(training.get("held_out")),
        )


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
