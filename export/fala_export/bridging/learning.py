"""Learn the linear map between two backbones' spaces; its form is chosen on held-out text.

Every document is read once: all fits come from the moments of the training documents, and all
errors from those of the held-out ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fala.model.heads import Vectors
from fala_export.bridging.forms import Centre, Matrix, Moments, Ridge, errors_by_rank, procrustes
from fala_export.errors import ExportError
from fala_export.fitting.bridge import HELD_OUT, check_enough

PROCRUSTES, REDUCED_RANK, RIDGE = "procrustes", "reduced rank", "ridge"

#: Strengths of a ridge: its penalty in documents of mean variance. In half decades, from
#: nearly none to more documents than most corpora have.
STRENGTHS = tuple(10 ** (power / 2) for power in range(-4, 13))

_NEAR = 1.001  # a simpler map is preferred if its error is within this factor of the least


@dataclass(frozen=True)
class Trial:
    """A form at one strength and rank, learned without the held-out documents.

    Attributes:
        form: ``"procrustes"``, ``"reduced rank"`` or ``"ridge"``.
        strength: Strength of the ridge, see ``STRENGTHS``; None for Procrustes.
        rank: Rank of the map.
        explained: Share of the held-out documents' variance over all coordinates of the new
            space that it explains; predicting the training mean explains 0.
    """

    form: str
    strength: float | None
    rank: int
    explained: float


@dataclass(frozen=True)
class LearnedMap:
    """A map from old embeddings to new ones: new = old @ matrix + offset, roughly.

    Attributes:
        matrix: Shape (d_old, d_new); learned on all documents.
        offset: Shape (d_new,).
        variance: Mean squared error of each coordinate on held-out documents, (d_new,), by the
            map of the same form that was learned without them.
        chosen: The chosen form.
        trials: Every form at its best; simplest first.
        documents: Number of documents.
        held_out: Number of held-out ones, which chose the form.
    """

    matrix: Vectors
    offset: Vectors
    variance: Vectors
    chosen: Trial
    trials: tuple[Trial, ...]
    documents: int
    held_out: int


def learn_map(
    old: Vectors, new: Vectors, seed: int = 0, step: Callable[[], object] = lambda: None
) -> LearnedMap:
    """Learn the map from old embeddings to new ones of the same documents.

    A fifth of the documents, drawn at random, chooses form, strength and rank by squared error;
    of those within 0.1 % of the least, the simplest. The chosen form is then fitted to all.

    Args:
        old: Shape (n, d_old), of distinct documents.
        new: Shape (n, d_new), of the same.
        seed: Draws the held-out documents.
        step: Called after each of ``STRENGTHS``.

    Raises:
        DataError: There are too few documents.
        ExportError: A backbone embeds all of them alike.
    """
    count, dimension = old.shape
    check_enough(count, dimension)
    order = np.random.default_rng(seed).permutation(count)
    held_out, training = np.split(order, [round(HELD_OUT * count)])
    centre = Centre.of(old, new, training)
    training_moments = Moments.of(old, new, training, centre)
    held_out_moments = Moments.of(old, new, held_out, centre)
    for moments in (training_moments, held_out_moments):
        _check_varied(moments)
    trials = _try_all(training_moments, held_out_moments, step)
    chosen = _near_best(trials)[0]
    variance = held_out_moments.errors(_fit(training_moments, chosen)) / held_out_moments.documents

    centre = Centre.of(old, new, order)
    matrix = _fit(Moments.of(old, new, order, centre), chosen)
    return LearnedMap(
        matrix=matrix.astype(np.float32),
        offset=(centre.new - centre.old @ matrix).astype(np.float32),
        variance=variance.astype(np.float32),
        chosen=chosen,
        trials=trials,
        documents=count,
        held_out=held_out_moments.documents,
    )


def _check_varied(moments: Moments) -> None:
    for name, variance in (("old", moments.old.trace()), ("new", moments.new.sum())):
        if variance <= 0:
            raise ExportError(
                f"the {name} backbone embeds all documents alike; "
                "is the text in one of its languages?"
            )


def _try_all(
    training: Moments, held_out: Moments, step: Callable[[], object]
) -> tuple[Trial, Trial, Trial]:
    """The best trial of every form, simplest form first."""
    total = float(held_out.new.sum())

    def explained(matrix: Matrix) -> float:
        return 1 - float(held_out.errors(matrix).sum()) / total

    full = min(training.cross.shape)
    rotated = Trial(PROCRUSTES, None, full, explained(procrustes(training)))
    penalized: list[Trial] = []
    reduced: list[Trial] = []
    ridge = Ridge(training)
    for strength in STRENGTHS:
        fit = ridge.fit(strength)
        penalized.append(Trial(RIDGE, strength, full, explained(fit)))
        errors = errors_by_rank(held_out, fit, ridge.directions(strength))
        shares = (1 - errors / total).tolist()
        reduced += [
            Trial(REDUCED_RANK, strength, rank, share) for rank, share in enumerate(shares, start=1)
        ]
        step()
    return rotated, _simplest(reduced), _simplest(penalized)


def _near_best(trials: Sequence[Trial]) -> list[Trial]:
    """The trials whose squared error is near the least, in order."""
    least = 1 - max(trial.explained for trial in trials)
    return [trial for trial in trials if 1 - trial.explained <= _NEAR * least]


def _simplest(trials: Sequence[Trial]) -> Trial:
    """The trial of least rank, then of strongest penalty, among those near a form's best."""
    return min(_near_best(trials), key=lambda trial: (trial.rank, -(trial.strength or 0.0)))


def _fit(moments: Moments, trial: Trial) -> Matrix:
    if trial.strength is None:
        return procrustes(moments)
    ridge = Ridge(moments)
    fit = ridge.fit(trial.strength)
    if trial.form == RIDGE:
        return fit
    first = ridge.directions(trial.strength)[:, : trial.rank]
    return fit @ first @ first.T
