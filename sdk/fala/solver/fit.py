"""The one fit of the device: a personal model over blocks of features.

    z = sum_k omega_k . x_k + b + a (z_vendor - mean z_vendor),
    (omega, b, a) ~ Normal((w, the vendor's b, 0), S)                                       (1)

Labels count as cross-entropy, or a rating's as half squares by its noise; old logits count as
weighted squares where there is no label (``evidence_of``). Every variance of the Gaussian is
multiplied by a scale, which was chosen on the vendor's public annotators. ``fala.solver.newton``
has the objective, with the half in front of the Gaussian's term.

Two models are fitted: the minimum of all of (1), and that of (1) with omega = w, where the labels
determine only the slope and the bias of the vendor's logit (Platt, 1999). The active model is an
interpolation of the two (``fala.solver.judge``).

With theta = omega / w an isotropic Gaussian is the paper's ridge (equation 1) with a multiple of
the penalty P = diag(w^2), around theta = 1 instead of 0.

Further examples are added to a fit by Newton's method from its minimum (``State``), to the minimum
of all; a few beside very many approximately. Of more than ``LARGEST`` examples a sample is fitted
alone for the leave-one-out logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fala.base.threads import one_blas_thread
from fala.model.links import PerTag
from fala.model.losses import Floats
from fala.model.scales import Scales, scales_at
from fala.solver.forms import (
    LARGEST,
    UPDATE_TOLERANCE,
    Form,
    Minimum,
    Recent,
    Work,
    form_of,
    minimize,
)
from fala.solver.gaussian import Candidate, Gaussian, calibrate, evidence_of, gaussian_around
from fala.solver.training import Block, TrainingSet
from fala.text.sparse_rows import SparseRows

#: Default scales of a dense block, of n-grams, of the slope and of the bias: the least loss in the
#: mean over people of six data sets who are in no table (``docs/tried.md``).
DENSE_SCALE, LEXICAL_SCALE, SLOPE_SCALE, BIAS_SCALE = 0.5, 1.0, 0.5, 0.7
#: The expected share of the full fit.
TRUST = 0.5
#: The number of labels from which on people who differ much are more than noise, and the first
#: three scales then; and that from which on the full fit is expected.
MANY, WIDER, WHOLE = 100, (1.0, 3.0, 1.0), 200
# The least trust by which a model's distance from the calibrated one is divided.
_LEAST_TRUST = 0.25


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit.

    Attributes:
        full: The minimum of all of (1).
        calibrated: The vendor's direction with the user's slope and bias.
        vendor: The vendor's logits on the same examples, shape (n, C).
        scales: Of its Gaussian.
        count: Examples with a label or a target.
        work: The cost of the full fit; None without evidence.
        state: The state that further examples are added to; None where features have a basis, which
            further ones do not.
        point: The minimum of (1), in the Gaussian's coordinates; None without evidence.
    """

    full: Candidate
    calibrated: Candidate
    vendor: Floats
    scales: Scales
    count: int = 0
    work: Work | None = None
    state: State | None = None
    point: Floats | None = None

    def personal(self, trust: PerTag) -> Candidate:
        """The interpolation by this share from the calibrated model to the full fit."""
        return self.calibrated.towards(self.full, trust)


@one_blas_thread()
def fit(
    training: TrainingSet,
    scales: Scales | None = None,
    near: Fit | None = None,
    *,
    left_out_only: bool = False,
) -> Fit:
    """Fit to labels, and to targets where there is no label.

    Args:
        training: The user's examples; without any, the result is the Gaussian's mean.
        scales: Of the Gaussian; None takes the defaults for the number of labels.
        near: A fit to nearly the same examples, from which a fit to very many starts.
        left_out_only: Only the leave-one-out logits are needed: for more than ``LARGEST`` examples
            the weights are those of the sample.
    """
    vendor = training.vendor_logits()
    used = training.used
    if scales is None:
        scales = scales_for((), training)
    prior = gaussian_around(training, vendor, scales)
    evidence = evidence_of(training, beside_labels=bool(training.labelled.any()))
    every = prior.problem(training, vendor, evidence)
    chosen = np.flatnonzero(used)
    if not len(chosen):
        vendor_model = Candidate(prior.weights, prior.bias, vendor)
        return Fit(prior.full(every.start, every.offset), vendor_model, vendor, scales)
    problem = every if used.all() else every.take(chosen)
    form = form_of(problem)
    if form.blocks:
        sample = np.sort(np.random.default_rng(0).permutation(len(chosen))[:LARGEST])
        sampled = minimize(form_of(problem.take(sample)))  # for the leave-one-out logits
        left_out = every.logits(sampled.point)
        left_out[chosen[sample]] = sampled.left_out
        minimum = sampled
        if not left_out_only:
            start = None if near is None else near.point
            fits = start is not None and start.shape == sampled.point.shape
            minimum = minimize(form, start if fits else sampled.point)
    else:
        minimum = minimize(form)
        left_out = minimum.left_out
        if len(chosen) < len(training):
            left_out = every.logits(minimum.point)
            left_out[used] = minimum.left_out
    plain = calibrate(prior, vendor[used], problem.evidence)
    plain_left_out = prior.calibration(vendor, evidence).logits(plain.point)
    plain_left_out[used] = plain.left_out
    state = None
    has_basis = any(getattr(block.inputs, "basis", None) is not None for block in training.blocks)
    if not has_basis and not (left_out_only and form.blocks):
        state = State(prior, form, vendor[used], minimum, plain.point)
    return Fit(
        prior.full(minimum.point, left_out),
        prior.calibrated(plain.point, plain_left_out),
        vendor, scales, len(chosen), minimum.work, state, minimum.point,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class State:
    """A minimum with its problem, from which the minimum with further examples is found.

    Attributes:
        gaussian: The prior.
        form: J of all examples.
        vendor: The vendor's logits of the same examples.
        minimum: Its minimum.
        plain: The calibrated model's minimum.
        recent: Examples added since, beside very many; None is none.
    """

    gaussian: Gaussian
    form: Form
    vendor: Floats
    minimum: Minimum
    plain: Floats
    recent: Recent | None = None

    @classmethod
    @one_blas_thread()
    def of_model(
        cls, training: TrainingSet, scales: Scales, logits: Floats, trust: PerTag
    ) -> State:
        """The state of a model that was fitted earlier, found from its logits.

        At the minimum delta = -R' times the gradient of the data terms by the logits, which is
        where this minimization starts.

        Args:
            training: The examples of that fit, and perhaps a few others.
            scales: Its scales.
            logits: The model's logits of the examples, shape (n, C).
            trust: Its share of the full fit; see ``Fit.personal``.
        """
        chosen = np.flatnonzero(training.used)
        vendor = training.vendor_logits()
        gaussian = gaussian_around(training, vendor, scales)
        evidence = evidence_of(training, beside_labels=bool(training.labelled.any()))
        problem = gaussian.problem(training, vendor, evidence).take(chosen)
        plain = calibrate(gaussian, vendor[chosen], problem.evidence)
        shares = np.asarray(trust, dtype=np.float64)
        # The model is between the calibrated one and the full fit.
        full = plain.z + (logits[chosen] - plain.z) / np.maximum(shares, _LEAST_TRUST)
        form = form_of(problem)
        minimum = minimize(form, form.start_at(full), tolerance=UPDATE_TOLERANCE)
        return cls(gaussian, form, vendor[chosen], minimum, plain.point)

    def more(self, training: TrainingSet, replaced: Sequence[int] = ()) -> State:
        """The state with further examples, in the same coordinates.

        Args:
            training: The further examples; each has a label or a target.
            replaced: Positions of earlier rows of these examples, which no longer count.
        """
        vendor = training.vendor_logits()
        new = self.gaussian.problem(training, vendor, evidence_of(training, beside_labels=True))
        every = np.vstack([self.vendor, vendor])
        last = self.recent
        added = 0 if last is None else len(last.problem.rows)
        with one_blas_thread():
            if not replaced and self.form.adds_quickly(len(training), added):
                return replace(self, vendor=every, recent=Recent.after(self.minimum, new, last))
            start = self.minimum.start
            if last is not None:
                new, start = last.problem.stack(new), last.point
            form = self.form.stack(new).without(replaced)
            minimum = minimize(form, start, self.minimum.inverse, UPDATE_TOLERANCE)
            plain = calibrate(self.gaussian, every, form.problem.evidence, self.plain)
        return State(self.gaussian, form, every, minimum, plain.point)

    @property
    def count(self) -> int:
        """The number of rows, replaced ones included: positions count all of them."""
        return len(self.vendor)

    @one_blas_thread()
    def model(self, trust: PerTag) -> Candidate:
        """The interpolation from the calibrated model to the full one, without logits."""
        point = self.minimum.point if self.recent is None else self.recent.point
        no_logits = np.empty((0, len(point)))
        calibrated = self.gaussian.calibrated(self.plain, no_logits)
        return calibrated.towards(self.gaussian.full(point, no_logits), trust)


def default_scales(blocks: Sequence[Block]) -> tuple[Scales, ...]:
    """The table of scales for some blocks where the release has none."""

    def row(dense: float, words: float, slope: float, labels: int) -> Scales:
        of_blocks = (words if isinstance(block.inputs, SparseRows) else dense for block in blocks)
        return Scales(tuple(of_blocks), slope, BIAS_SCALE, TRUST, labels)

    many = row(*WIDER, MANY)
    whole = replace(many, trust=1.0, labels=WHOLE)
    return row(DENSE_SCALE, LEXICAL_SCALE, SLOPE_SCALE, 0), many, whole


def scales_for(table: Sequence[Scales], training: TrainingSet) -> Scales:
    """Return the scales for a user's number of labels.

    A release's table ends where the public had too few annotators with as many labels. Above its
    last row, the default rows hold: the last row is for users with far fewer labels.

    Args:
        table: The release's, by rising number of labels; empty without one.
        training: The user's examples.
    """
    defaults = default_scales(training.blocks)
    above = [row for row in defaults if not table or row.labels > table[-1].labels]
    return scales_at([*table, *above], int(training.labelled.sum()))
