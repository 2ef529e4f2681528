"""A fit to which further examples are added, without fitting to all again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fala.model.losses import Floats, probabilities
from fala.solver.gaussian import Candidate, Gaussian, calibrate, evidence_of
from fala.solver.newton import Evidence, Problem, curvature, update
from fala.solver.threads import one_blas_thread
from fala.solver.training import TrainingSet


class State(Protocol):
    """A minimum that can take further examples."""

    @property
    def fitted(self) -> int:
        """How many examples the last fit of all had."""

    @property
    def count(self) -> int:
        """How many examples it knows by position; those that no longer count among them."""

    @property
    def further(self) -> int:
        """How many examples were added since that fit."""

    def more(self, training: TrainingSet, replaced: Mapping[int, int] | None = None) -> State:
        """The state with further examples, in the same coordinates.

        Args:
            training: The further examples; each has a label or a target.
            replaced: Of those that were known, by position in ``training``: the position of before,
                which no longer counts.
        """

    def candidates(self) -> tuple[Candidate, Candidate]:
        """The full model and the calibrated one; their logits are plain ones, or none."""


@dataclass(frozen=True, eq=False)
class ExactState:
    """A minimum with all that was minimized: further examples move it to the new minimum.

    Attributes:
        gaussian: The prior.
        problem: What was minimized.
        vendor: The vendor's logits of the same examples.
        point: Its minimum.
        solve: The inverse of the last exact fit's Hessian.
        fitted: How many examples that fit had.
    """

    gaussian: Gaussian
    problem: Problem
    vendor: Floats
    point: Floats
    solve: Callable[[Floats], Floats]
    fitted: int

    @property
    def count(self) -> int:
        """See ``State.count``."""
        return len(self.problem.offset)

    @property
    def further(self) -> int:
        """See ``State.further``."""
        return self.count - self.fitted

    def more(self, training: TrainingSet, replaced: Mapping[int, int] | None = None) -> ExactState:
        """See ``State.more``."""
        prior, problem = self.gaussian, self.problem
        vendor = training.vendor_logits()
        new, old = evidence_of(training, beside_labels=True), problem.evidence
        evidence = _joined(old, new, replaced or {})
        larger = Problem(
            problem.rows.stack(prior.rows(training)),
            np.vstack([problem.own, prior.own(vendor)]),
            np.vstack([problem.offset, prior.offset(training, vendor)]),
            evidence,
        )
        with one_blas_thread():
            point, _ = update(larger, self.point, self.solve)
        vendor = np.vstack([self.vendor, vendor])
        return ExactState(prior, larger, vendor, point, self.solve, self.fitted)

    def candidates(self) -> tuple[Candidate, Candidate]:
        """See ``State.candidates``."""
        problem, prior = self.problem, self.gaussian
        parts = self.point.reshape(len(prior.bias), -1)
        full = prior.full(parts[:, :-1], parts[:, -1], problem.logits(self.point))
        with one_blas_thread():
            found = calibrate(prior, self.vendor, problem.own, problem.evidence)
        return full, prior.calibrated(found, found.z)


@dataclass(frozen=True, eq=False)
class QuadraticState:
    """A minimum of very many examples, with no more of them than J's curvature there.

    Near its minimum J is a quadratic (Laplace's approximation), and of many examples one more moves
    it by next to nothing: a Newton step takes that one's gradient alone. What has to be read does
    not grow with the examples.

    Attributes:
        gaussian: The prior.
        evidence: What the examples of before were fitted to, or some of them.
        point: The minimum.
        solve: The inverse of J's Hessian.
        calibrated: The vendor's direction with the user's own slope and bias, at the last fit.
        fitted: How many examples that fit had.
        further: How many were added since.
    """

    gaussian: Gaussian
    evidence: Evidence
    point: Floats
    solve: Callable[[Floats], Floats]
    calibrated: Candidate
    fitted: int
    further: int = 0

    @property
    def count(self) -> int:
        """See ``State.count``."""
        return len(self.evidence.labels)

    def more(
        self, training: TrainingSet, replaced: Mapping[int, int] | None = None
    ) -> QuadraticState:
        """See ``State.more``."""
        prior, known = self.gaussian, replaced or {}
        vendor = training.vendor_logits()
        new = evidence_of(training, beside_labels=True)
        problem = Problem(
            prior.rows(training), prior.own(vendor), prior.offset(training, vendor), new
        )
        point = self.point
        with one_blas_thread():
            for position in range(len(training)):
                one = problem.take(np.array([position]))
                gone = None
                if position in known:
                    gone = self.evidence.take(np.array([known[position]]))
                point = self._moved(point, one, gone)
        return replace(
            self, evidence=_joined(self.evidence, new, known), point=point,
            further=self.further + len(training),
        )  # fmt: skip

    def _moved(self, point: Floats, one: Problem, gone: Evidence | None) -> Floats:
        """The minimum with one further example, and without what it said before."""
        z = one.logits(point)
        shares = probabilities(z)
        slope, curved = one.evidence.slope(z, shares), curvature(one.evidence, shares)
        if gone is not None:
            slope = slope - gone.slope(z, shares)
            curved = np.maximum(curved - curvature(gone, shares), 0.0)
        direction = self.solve(one.gather(slope))
        # Its own curvature holds the example back: Sherman and Morrison, logit by logit.
        told = slope != 0
        leverage = np.where(told, one.move(direction) / np.where(told, slope, 1.0), 0.0)
        share = 1.0 / (1.0 + curved * np.maximum(leverage, 0.0))
        parts = direction.reshape(slope.shape[1], -1) * share.T
        return np.asarray(point - parts.ravel())

    def candidates(self) -> tuple[Candidate, Candidate]:
        """See ``State.candidates``."""
        parts = self.point.reshape(len(self.gaussian.bias), -1)
        nothing = np.empty((0, len(parts)))
        full = self.gaussian.full(parts[:, :-1], parts[:, -1], nothing)
        return full, replace(self.calibrated, left_out=nothing)


def _joined(old: Evidence, new: Evidence, replaced: Mapping[int, int]) -> Evidence:
    """What earlier examples and further ones are fitted to; those replaced count no more."""
    weights = np.array([old.label_weights, old.target_weights])
    weights[:, list(replaced.values())] = 0.0
    return Evidence(
        np.vstack([old.labels, new.labels]),
        np.concatenate([weights[0], new.label_weights]),
        np.vstack([old.targets, new.targets]),
        np.concatenate([weights[1], new.target_weights]),
    )
