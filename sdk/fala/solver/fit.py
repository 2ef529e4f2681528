"""The one fit of the device: a personal model over blocks of features.

    z = sum_k omega_k . x_k + b + a (z_vendor - mean z_vendor),
    (omega, b, a) ~ Normal((w, the vendor's b, 0), S)                                       (1)

Labels count as cross-entropy, or a rating's as squares by its noise; old logits count as squares
where there is no label. Every block's Gaussian is multiplied by a scale, which was chosen on the
vendor's public annotators.

It has two minima: of all of (1), and of (1) with omega = w, where the labels determine only the
slope and the bias of the vendor's logit (Platt, 1999). The active model is an interpolation of the
two (``fala.solver.judge``).

With theta = omega / w an isotropic Gaussian is the paper's ridge (equation 1) with a multiple of
the penalty P = diag(w^2), around theta = 1 instead of 0.

Further examples are added to a fit by Newton's method from its minimum (``State``). Of more than
``LARGEST`` examples a sample represents all: it is fitted alone for the leave-one-out logits, and
gives J's curvature for later additions (``Resumed``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fala.errors import DataError, counted, type_of
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.links import PerTag
from fala.model.losses import Floats, check_arrays
from fala.model.prior import PopulationPrior
from fala.solver.design import GramRows, Rows
from fala.solver.gaussian import Candidate, Gaussian, calibrate, evidence_of, gaussian_around
from fala.solver.inverses import OverColumns, OverExamples, Solve
from fala.solver.newton import (
    SINGLE,
    Evidence,
    Problem,
    Work,
    add,
    minimize,
    minimize_many,
    over_columns,
    update,
)
from fala.solver.threads import one_blas_thread
from fala.solver.training import Block, Inputs, TrainingSet, blocks_of, personal_of
from fala.text.sparse_rows import SparseRows

#: Default scales: of a dense block, of n-grams, and of the slope.
DENSE_SCALE, LEXICAL_SCALE, SLOPE_SCALE = 1.0, 3.0, 1.0
#: The largest number of examples for a matrix over the examples.
LARGEST = 2000

# Examples that are added to a resumed fit at once.
_BATCH = 32


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit.

    Attributes:
        full: The minimum of all of (1).
        calibrated: The vendor's direction with the user's slope and bias.
        vendor: The vendor's logits on the same examples, shape (n, C).
        count: Examples with a label or a target.
        scales: Every block's scale, and the slope's; empty without evidence.
        work: The cost of the full fit; None without evidence.
        state: The state that further examples are added to; None for more than ``LARGEST`` (see
            ``resume``), and where features have a basis, which further ones do not.
        point: The minimum of (1), in the Gaussian's coordinates; None without evidence.
    """

    full: Candidate
    calibrated: Candidate
    vendor: Floats
    count: int = 0
    scales: tuple[float, ...] = ()
    work: Work | None = None
    state: State | None = None
    point: Floats | None = None

    def personal(self, trust: PerTag) -> Candidate:
        """The interpolation by this share from the calibrated model to the full fit."""
        return self.calibrated.towards(self.full, trust)


@one_blas_thread()
def fit(
    training: TrainingSet,
    scales: Sequence[float] | None = None,
    near: Fit | None = None,
    *,
    left_out_only: bool = False,
) -> Fit:
    """Fit to labels, and to targets where there is no label.

    Args:
        training: The user's examples; without any, the result is the Gaussian's mean.
        scales: A scale for every block, and one for the slope; None takes the defaults.
        near: A fit to nearly the same examples, from which a fit to very many starts.
        left_out_only: Only the leave-one-out logits are needed: for more than ``LARGEST`` examples
            the weights are those of the sample.
    """
    vendor = training.vendor_logits()
    used = training.used
    scales = default_scales(training.blocks) if scales is None else scales
    prior = gaussian_around(training, vendor, scales)
    evidence = evidence_of(training, beside_labels=bool(training.labelled.any()))
    every = prior.problem(training, vendor, evidence)
    chosen = np.flatnonzero(used)
    if not len(chosen):
        vendor_model = Candidate(prior.weights, prior.bias, vendor)
        return Fit(prior.full(every.start, every.offset), vendor_model, vendor)
    problem = every if used.all() else every.take(chosen)
    if len(chosen) > LARGEST and not over_columns(problem.rows):
        sample = np.sort(np.random.default_rng(0).permutation(len(chosen))[:LARGEST])
        sampled = minimize(problem.take(sample))  # for the leave-one-out logits
        left_out = every.logits(sampled.point)
        left_out[chosen[sample]] = sampled.left_out
        minimum = sampled
        if not left_out_only:
            start = None if near is None else near.point
            minimum = minimize_many(problem, sampled, len(sample), start)
    else:
        minimum = minimize(problem)
        left_out = minimum.left_out
        if len(chosen) < len(training):
            left_out = every.logits(minimum.point)
            left_out[used] = minimum.left_out
    plain = calibrate(prior, vendor[used], problem.evidence)
    plain_left_out = prior.calibration(vendor, evidence).logits(plain.point)
    plain_left_out[used] = plain.left_out
    state = None
    has_basis = any(getattr(block.inputs, "basis", None) is not None for block in training.blocks)
    if len(chosen) <= LARGEST and not has_basis:
        state = State(prior, problem, vendor[used], minimum.point, minimum.solve, len(chosen))
    return Fit(
        prior.full(minimum.point, left_out),
        prior.calibrated(plain.point, plain_left_out),
        vendor, len(chosen), tuple(scales), minimum.work, state, minimum.point,
    )  # fmt: skip


def on_public(training: TrainingSet, calibrated: Candidate) -> Floats | None:
    """The calibrated model's logits of public examples, shape (m, C); None without any.

    Args:
        training: The user's examples.
        calibrated: The calibrated model of a fit to them.
    """
    public = np.array(training.link.public_logits).T
    if not public.size:
        return None
    vendor = np.hstack([block.weight for block in training.blocks])
    slope = (np.hstack(calibrated.weights) * vendor).sum(axis=1)
    slope /= np.maximum(np.square(vendor).sum(axis=1), np.finfo(np.float32).tiny)
    return np.asarray(calibrated.bias + slope * (public - training.bias))


@dataclass(frozen=True, eq=False)
class State:
    """A minimum with its problem, from which the minimum with further examples is found.

    Attributes:
        gaussian: The prior.
        problem: The problem.
        vendor: The vendor's logits of the same examples.
        point: Its minimum.
        solve: The inverse of the Hessian at the last fit.
        fitted: How many examples that fit had.
        further: How many were added since.
    """

    gaussian: Gaussian
    problem: Problem[Rows]
    vendor: Floats
    point: Floats
    solve: Solve
    fitted: int
    further: int = 0

    @property
    def count(self) -> int:
        """The number of rows, replaced ones included: positions count all of them."""
        return len(self.problem.offset)

    def more(self, training: TrainingSet, replaced: Mapping[int, int] | None = None) -> State:
        """The state with further examples, in the same coordinates.

        Args:
            training: The further examples; each has a label or a target.
            replaced: Earlier rows of these examples, by position in ``training``; they no longer
                count.
        """
        vendor = training.vendor_logits()
        new = self.gaussian.problem(training, vendor, evidence_of(training, beside_labels=True))
        evidence = self.problem.evidence.without([*(replaced or {}).values()])
        larger = replace(self.problem, evidence=evidence).stack(new)
        with one_blas_thread():
            point = update(larger, self.point, self.solve)
        return replace(
            self, problem=larger, vendor=np.vstack([self.vendor, vendor]), point=point,
            further=self.further + len(training),
        )  # fmt: skip

    def candidates(self) -> tuple[Candidate, Candidate]:
        """The full model and the calibrated one; their logits are plain ones."""
        prior, problem = self.gaussian, self.problem
        with one_blas_thread():
            plain = calibrate(prior, self.vendor, problem.evidence)
        full = prior.full(self.point, problem.logits(self.point))
        return full, prior.calibrated(plain.point, plain.z)


@dataclass(frozen=True, eq=False)
class Resumed:
    """A model that was fitted to very many examples, with J's curvature there by a sample.

    Adding an example reads an amount of data that does not grow with the examples.

    Attributes:
        gaussian: The prior, around the model.
        evidence: The evidence of the sample and of further examples.
        point: The minimum.
        inverses: (R'WR + 1)^-1 there; of tags one each.
        plain: The calibrated model's minimum.
        plain_inverses: The inverses there.
        fitted: How many examples the model was fitted to.
        further: How many were added since.
    """

    gaussian: Gaussian
    evidence: Evidence
    point: Floats
    inverses: Sequence[Solve]
    plain: Floats
    plain_inverses: Sequence[Solve]
    fitted: int
    further: int

    @property
    def count(self) -> int:
        """See ``State.count``."""
        return len(self.evidence.labels)

    def more(self, training: TrainingSet, replaced: Mapping[int, int] | None = None) -> Resumed:
        """See ``State.more``."""
        prior, point, plain = self.gaussian, self.point, self.plain
        vendor, new = training.vendor_logits(), evidence_of(training, beside_labels=True)
        problem: Problem[Rows] = prior.problem(training, vendor, new)
        calibration: Problem[Rows] = prior.calibration(vendor, new)
        if replaced:
            replacing = np.array(list(replaced))
            removed = self.evidence.take(np.array(list(replaced.values()))).negative()
            problem = replace(problem.take(replacing), evidence=removed).stack(problem)
            calibration = replace(calibration.take(replacing), evidence=removed).stack(calibration)
        positions = np.arange(len(problem.rows))
        with one_blas_thread():
            for start in range(0, len(positions), _BATCH):
                part = positions[start : start + _BATCH]
                point = add(problem.take(part), point, self.inverses)
                plain = add(calibration.take(part), plain, self.plain_inverses)
        return replace(
            self, evidence=self.evidence.stack(new), point=point, plain=plain,
            further=self.further + len(training),
        )  # fmt: skip

    def candidates(self) -> tuple[Candidate, Candidate]:
        """The full model and the calibrated one, without logits."""
        no_logits = np.empty((0, len(self.point)))
        return (
            self.gaussian.full(self.point, no_logits),
            self.gaussian.calibrated(self.plain, no_logits),
        )


def resume(training: TrainingSet, scales: Sequence[float], fitted: int, further: int) -> Resumed:
    """Restore the state of a model that was fitted to many examples, from a sample of them.

    Args:
        training: A sample of the examples. The blocks' weights and the bias are the model's, not
            the vendor's.
        scales: The scales of that fit.
        fitted: How many examples it was fitted to.
        further: How many were added since.
    """
    blocks = tuple(
        replace(block, inputs=block.inputs.features())
        if isinstance(block.inputs, Inputs)
        else block
        for block in training.blocks
    )
    training = replace(training, blocks=blocks)
    with one_blas_thread():
        z = training.vendor_logits()
        prior = gaussian_around(training, z, [*scales[:-1], 0.0])
        evidence = evidence_of(training, beside_labels=True)
        few, plain = prior.problem(training, z, evidence), prior.calibration(z, evidence)
        factor = (fitted + further) / len(training)
        weights = [factor * tag.evidence.curvature_at(tag.offset) for tag in plain.separate()]
        gram, rows = GramRows(few.rows.gram(single=len(z) > SINGLE)), few.rows.single()
        return Resumed(
            prior, evidence, few.start,
            [replace(OverExamples.of(gram, of_tag), rows=rows).solve for of_tag in weights],
            plain.start, [OverColumns(plain.rows, of_tag).solve for of_tag in weights],
            fitted, further,
        )  # fmt: skip


def default_scales(blocks: Sequence[Block]) -> tuple[float, ...]:
    """The default scales of some blocks, and the slope's."""
    lexical = [isinstance(block.inputs, SparseRows) for block in blocks]
    return (*(LEXICAL_SCALE if words else DENSE_SCALE for words in lexical), SLOPE_SCALE)


def fit_personal(
    head: Head,
    inputs: Vectors,
    *,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    prior: PopulationPrior | None = None,
    words: SparseRows | None = None,
) -> PersonalModel:
    """Fit a personal model to given embeddings, without a device: the one fit of the device.

    Args:
        head: The vendor's head.
        inputs: The head's inputs of n examples, shape (n, D); see ``Head.inputs``.
        logits: Targets, shape (n, C); NaN where there is none. Where an example has a label, too,
            the label counts.
        labels: Class shares or numbers, shape (n, C), NaN where there is none; see
            ``Head.label_shares``.
        prior: How people differ from the head; None takes an isotropic Gaussian around it.
        words: Their n-grams, where the head has a lexical view; see ``Head.words``.

    Raises:
        DataError: If there is neither a logit nor a label, a shape does not fit, or a number is
            not finite.

    Examples:
        >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.2, 0.8]], np.float32)
        >>> head = fala_export.fit_head(vectors, ["fine", "fine", "rude", "rude"])
        >>> shares = head.label_shares(["rude", "rude", "fine", "fine"])  # this user's
        >>> personal = fit_personal(head, vectors, labels=shares)
        >>> bool(personal.logits(vectors)[0, 0] > head.vendor_model().logits(vectors)[0, 0])
        True
    """
    if not isinstance(head, Head):
        raise DataError(f"head is a fala_export.Head, not {type_of(head)}")
    check_arrays(inputs=inputs)
    shape = (len(inputs), len(head.bias))
    columns = head.weight.shape[1]
    if inputs.ndim != 2 or inputs.shape[1] != columns:
        raise DataError(f"inputs of shape (n, {columns}) expected, not {inputs.shape}")
    if (words is None) != (head.lexical is None):
        raise DataError(
            "words go with a head that has a lexical view, and with no other: see Head.words"
        )
    if words is not None and len(words) != len(inputs):
        raise DataError(f"{counted(len(inputs), 'input')}, but the words of {len(words)}")
    blocks = blocks_of(head, Inputs(inputs), words, prior)
    training = TrainingSet(
        blocks, head.bias, _array(labels, shape, "labels"), _array(logits, shape, "logits"),
        head.link,
    )  # fmt: skip
    if not training.used.any():
        raise DataError("neither an old logit nor a label to fit")
    personal = fit(training).full
    return personal_of(head, personal.weights, personal.bias)


def _array(values: ArrayLike | None, shape: tuple[int, int], name: str) -> Floats:
    if values is None:
        return np.full(shape, np.nan)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} are not numbers: {error}") from error
    if array.shape == shape[:1] and shape[1] == 1:
        array = array[:, None]
    if array.shape != shape:
        raise DataError(f"{name} of shape {shape} expected, not {array.shape}")
    return array
