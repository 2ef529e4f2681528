"""The personal matrix of one user, from old logits, labels, or both."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala.errors import DataError
from fala.model.heads import Head, PersonalModel, Vectors
from fala.solver.evidence import Evidence
from fala.solver.objective import Fit, fit
from fala.solver.threads import one_blas_thread

#: Least share of the mean squared weight that a coordinate's penalty has.
MIN_PENALTY = 1e-3

#: Weight of an old logit beside labels: the square then curves as the cross-entropy of one label
#: does at an undecided document (1/4, against the square's 2), so each counts as much as the other.
LOGIT_WEIGHT = 1 / 8

Prior = Literal["vendor", "zero"]


def fit_personal(
    head: Head,
    inputs: Vectors,
    *,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    prior: Prior = "vendor",
    lambda_: float | None = None,
) -> PersonalModel:
    """Fit a personal model to embeddings that are there already: a replacement's one solve.

    ``Device.replace`` does this with the representatives that it chose; here the examples, the
    targets and the penalty are the caller's. The paper's matrix (equation 1) is
    ``fit_personal(head, inputs, logits=old, prior="zero", lambda_=0.1)``.

    Args:
        head: The vendor's head.
        inputs: The head's inputs of n examples, shape (n, d); see ``Head.inputs``.
        logits: Targets, shape (n, C); NaN where there is none.
        labels: Class shares, shape (n, C), NaN where there is none; see ``Head.label_shares``.
            Beside labels a logit weighs as much as one label.
        prior: ``"vendor"`` shrinks to theta = 1 with b free; ``"zero"`` is the paper: to theta = 0,
            with b as it is.
        lambda_: The penalty; None lets exact leave-one-out choose it.

    Raises:
        DataError: If there is neither a logit nor a label, a shape does not fit, or a number is
            not finite.
    """
    if prior not in get_args(Prior):
        raise DataError(f"prior is one of {', '.join(get_args(Prior))}, not {prior!r}")
    evidence = Evidence.of(head.features(inputs), logits=logits, labels=labels)
    solved = personal_fit(head, evidence, prior, lambda_)
    return PersonalModel(head, solved.theta, solved.bias)


def carried_logits(
    vendor: NDArray[np.floating], old: NDArray[np.floating], old_vendor: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Targets for the new model: its vendor's logits, moved by what was personal in the old ones.

    The old personal model's logit is the old vendor's plus what the user changed. A prior at the
    new vendor's model asks how to change that model, so the second part alone is carried over;
    taking the logit whole would also pull the new backbone back to the old one's mistakes.

    Args:
        vendor: Logits of the new vendor's own model, shape (n, C).
        old: The old personal model's, shape (n, C).
        old_vendor: The old vendor's own, shape (n, C).
    """
    return np.asarray(np.asarray(vendor, np.float64) + old - old_vendor)


def personal_fit(
    head: Head, evidence: Evidence, prior: Prior = "vendor", lambda_: float | None = None
) -> Fit:
    """Fit theta and b to a user's evidence.

    Args:
        head: The vendor's head.
        evidence: Old logits, labels, or both; beside labels a logit has ``LOGIT_WEIGHT``.
        prior: ``"vendor"``: theta0 = 1, b free, and P = diag(w^2), scaled to mean 1, so that J
            penalises how far the head's weights theta * w move from the vendor's w; a coordinate
            that the vendor hardly uses is not held back more than the others. ``"zero"``: the
            paper's theta0 = 0, P = I and fixed b.
        lambda_: A fixed penalty; None lets leave-one-out choose it.
    """
    lambdas = None if lambda_ is None else [lambda_]
    if evidence.labels is not None:
        evidence = replace(evidence, logit_weights=LOGIT_WEIGHT * evidence.logit_weights)
    if prior == "zero":
        with one_blas_thread():
            return fit(
                evidence, prior_mean=0.0, start_bias=head.bias, fixed_bias=True, lambdas=lambdas
            )
    square = np.mean(head.weight.astype(np.float64) ** 2, axis=0)
    mean = square.mean()
    precision = np.maximum(square / mean, MIN_PENALTY) if mean else np.ones_like(square)
    with one_blas_thread():
        return fit(evidence, precision=precision, start_bias=head.bias, lambdas=lambdas)
