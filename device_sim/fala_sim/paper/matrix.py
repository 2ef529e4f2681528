"""The paper's personal matrix diag(theta), fitted to old logits, labels, or both.

The device fits omega (``fala.solver.fit``); this is for comparisons with the paper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from fala.base.errors import DataError
from fala.base.threads import one_blas_thread
from fala.model.heads import Head, PersonalModel, Vectors
from fala.solver.gaussian import LOGIT_WEIGHT
from fala_sim.paper.fit import Fit, Targets, fit_paper

#: The least penalty of a coordinate, as a share of the mean squared weight.
MIN_PENALTY = 1e-3

Prior = Literal["vendor", "zero"]


def fit_matrix(
    head: Head,
    inputs: Vectors,
    *,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    prior: Prior = "vendor",
    lambda_: float | None = None,
) -> PersonalModel:
    """Fit a personal matrix to embeddings.

    The paper's (equation 1) is ``fit_matrix(head, inputs, logits=old, prior="zero", lambda_=0.1)``.

    Args:
        head: The vendor's head.
        inputs: The head's inputs of n examples, shape (n, d); see ``Head.inputs``.
        logits: Targets, shape (n, C); NaN if there is none.
        labels: Class shares, shape (n, C), NaN if there is none; see ``Head.label_shares``.
            Together with labels a logit has the weight of one label.
        prior: ``"vendor"`` shrinks to theta = 1 with b free; ``"zero"``, as the paper, to theta = 0
            with b fixed.
        lambda_: The penalty; None for the best by leave-one-out, which is exact without labels.

    Raises:
        DataError: There is neither a logit nor a label, a shape does not match, a number is not
            finite, or the head is for tags or ratings.
    """
    if prior not in get_args(Prior):
        raise DataError(f"prior is one of {', '.join(get_args(Prior))}, not {prior!r}")
    head.check_exclusive("the paper's matrix")
    evidence = Targets.of(head.features(inputs), logits=logits, labels=labels)
    fit = matrix_fit(head, evidence, prior, lambda_)
    with np.errstate(over="ignore", invalid="ignore"):
        return PersonalModel(head, fit.theta.astype(np.float32) * head.weight, fit.bias)


def matrix_fit(
    head: Head, evidence: Targets, prior: Prior = "vendor", lambda_: float | None = None
) -> Fit:
    """Fit theta and b to a user's evidence.

    Args:
        head: The vendor's head.
        evidence: Old logits, labels, or both; together with labels a logit has ``LOGIT_WEIGHT``.
        prior: ``"vendor"``: theta0 = 1, b free, and P = diag(w^2), scaled to mean 1, so that J
            penalises the distance of the weights theta * w from the vendor's w, and does not
            penalise coordinates of small w more than others. ``"zero"``: the paper's theta0 = 0,
            P = I and fixed b.
        lambda_: A fixed penalty; None for the best by leave-one-out.
    """
    lambdas = None if lambda_ is None else [lambda_]
    if evidence.labels is not None:
        evidence = replace(evidence, logit_weights=LOGIT_WEIGHT * evidence.logit_weights)
    with one_blas_thread():
        if prior == "zero":
            return fit_paper(
                evidence, prior_mean=0.0, start_bias=head.bias, fixed_bias=True, lambdas=lambdas
            )
        square = np.mean(head.weight.astype(np.float64) ** 2, axis=0)
        mean = square.mean()
        precision = np.maximum(square / mean, MIN_PENALTY) if mean else np.ones_like(square)
        return fit_paper(evidence, precision=precision, start_bias=head.bias, lambdas=lambdas)
