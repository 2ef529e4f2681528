"""The paper's ablations (Tables 3 to 7) for one user; cost is not measured.

All of them use cached embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.model.heads import Head, Vectors
from fala.selection.graph import unit_vectors
from fala.selection.representatives import representatives
from fala_sim.methods.fala_paper import medoids, solve, tune_matrix
from fala_sim.methods.frozen import ModelScores, vendor_scores
from fala_sim.methods.matrix import Matrix
from fala_sim.methods.method import MethodSettings, Scores
from fala_sim.methods.situation import Situation
from studies.ablation.objectives import fit_left_out, fit_objective

#: Table 4: numbers of examples of k-means and of FaLA-K, the paper's best for BERT.
EXAMPLES = 50
#: Table 5.
OBJECTIVES = ("ce", "mse", "mse+ce")
LAMBDAS = ("0.0001", "0.001", "0.01", "0.1", "0")
#: Table 7.
TOP_K = (10, 50, 100, 250)

# This value replaces Table 5's lambda of 0, as a multiple of the features' mean squared length.
# With fewer than d examples, equation 1 has no unique solution without a penalty.
_LIMIT = 1e-8

_STARTS = ("random", "full", "kmeans", "fala-k", "fala")

Variant = tuple[str, Scores, dict[str, Any]]


def variants() -> list[str]:
    """Return the names of all rows, in the order of ``ablations``."""
    return [
        "table3-old-global",
        "table3-old-personal",
        *(f"table4-{start}" for start in _STARTS),
        *(f"table5-{objective}-{lambda_}" for objective in OBJECTIVES for lambda_ in LAMBDAS),
        "table6-own-labels",
        "table6-fala",
        *(f"table7-{top_k}" for top_k in TOP_K),
    ]


def ablations(situation: Situation, settings: MethodSettings) -> Iterator[Variant]:
    """Yield all rows of one user.

    Each start of the matrix (Table 4) and each objective (Table 5) is followed by the same gradient
    tuning as in ``fala-paper``. The paper's figures show that Table 5 is also tuned: its figure for
    news, BERT, MSE and lambda 0.0001 is that of FaLA in Tables 2 and 4.

    A user without examples has the vendor's model in every row of the new backbone.

    Args:
        situation: The situation of the user.
        settings: Settings chosen for ``fala-paper``.

    Yields:
        A variant's name, its scores, and more fields of its record: ``clusters`` if there are any,
        and ``examples``, the number of examples on which the matrix was solved.
    """
    old = situation.old
    yield "table3-old-global", ModelScores(old, old.head.vendor_model()), {}
    yield "table3-old-personal", ModelScores(old, situation.personal), {}
    if not situation.user.train:
        for variant in variants()[2:]:
            yield variant, vendor_scores(situation), {}
        return
    user = _User.of(situation, settings)
    for table in (user.starts, user.objectives, user.without_the_vendor, user.neighbours):
        yield from table()


@dataclass(frozen=True)
class _User:
    """A user's train examples on the new backbone.

    Attributes:
        situation: The situation of the user.
        settings: Settings chosen for ``fala-paper``.
        inputs: Inputs of the train examples, shape (n, D).
        chosen: Positions of the examples on which FaLA solves.
    """

    situation: Situation
    settings: MethodSettings
    inputs: Vectors
    chosen: NDArray[np.int64]

    @classmethod
    def of(cls, situation: Situation, settings: MethodSettings) -> _User:
        """Return the user with the representatives for the settings."""
        inputs = situation.new.inputs(situation.user.train)
        chosen = medoids(situation, inputs, int(settings["top_k"]))
        return cls(situation, settings, inputs, chosen)

    def starts(self) -> Iterator[Variant]:
        """Yield the rows of Table 4: starts of the matrix."""
        random = np.random.default_rng(self.situation.seed)
        head, n = self.situation.new.head, len(self.inputs)
        # The numbers are uniform in [0, 1), as with torch.rand, because the paper does not specify
        # them. Random signs would leave nothing of the vendor's head.
        theta = random.random(head.weight.shape)
        yield "table4-random", self._tuned(Matrix(head, theta, head.bias)), {"examples": 0}

        # "A multitude of examples, equivalent to the dimension of the matrix", if there are enough.
        full = random.choice(n, min(n, head.dimension), replace=False)
        yield "table4-full", *self._solved(full)
        means = select_by_means(self.inputs, EXAMPLES, self.situation.seed)
        yield "table4-kmeans", *self._solved(means)

        clusters = {"clusters": len(self.chosen)}
        for name, examples in (
            ("fala-k", _filled(self.chosen, n, random)),
            ("fala", self.chosen),
        ):
            scores, extra = self._solved(examples)
            yield f"table4-{name}", scores, extra | clusters

    def objectives(self) -> Iterator[Variant]:
        """Yield the rows of Table 5: the objective by lambda, from theta0 = 0 with the vendor's b.

        All rows use the same representatives.
        """
        situation, chosen, head = self.situation, self.chosen, self.situation.new.head
        examples = [situation.user.train[index] for index in chosen.tolist()]
        logits = situation.old_logits(examples)
        shares = situation.label_shares()[chosen]
        features = head.features(self.inputs[chosen])
        length = float(np.mean(np.sum(features**2, axis=2))) or 1.0
        for objective in OBJECTIVES:
            for name in LAMBDAS:
                start = fit_objective(
                    head,
                    self.inputs[chosen],
                    None if objective == "ce" else logits,
                    None if objective == "mse" else shares,
                    float(name) or _LIMIT * length,
                )
                counts = {"examples": len(chosen), "clusters": len(chosen)}
                yield f"table5-{objective}-{name}", self._tuned(start), counts

    def without_the_vendor(self) -> Iterator[Variant]:
        """Yield the rows of Table 6: no global training, compared with FaLA.

        The paper fine-tunes a backbone without task data. Here a logistic head is fitted on the
        user's labels with a frozen backbone, with a ridge to zero whose penalty is chosen by
        left-out folds. b is the log-odds of the user's labels, and a matcher averages the history,
        because weights, bias and attention would otherwise be the vendor's.
        """
        new = self.situation.new
        shares = self.situation.label_shares()
        # Half an example is added to each label, so that no odds are 0.
        counts = shares.sum(axis=0) + 0.5
        if len(counts) == 1:
            counts = counts / (len(shares) + 1 - counts)
        weight = np.ones_like(new.head.weight)
        without = replace(new, head=Head(new.head.task, new.head.labels, weight, np.log(counts)))
        inputs = without.inputs(self.situation.user.train)
        user_model = fit_left_out(without.head, inputs, shares, self.situation.seed)
        yield "table6-own-labels", ModelScores(without, user_model), {}
        scores, extra = self._solved(self.chosen)
        yield "table6-fala", scores, extra | {"clusters": len(self.chosen)}

    def neighbours(self) -> Iterator[Variant]:
        """Yield the rows of Table 7: a user's number of clusters, by top k."""
        for top_k in TOP_K:
            chosen = medoids(self.situation, self.inputs, top_k)
            scores, extra = self._solved(chosen)
            yield f"table7-{top_k}", scores, extra | {"clusters": len(chosen)}

    def _solved(self, chosen: NDArray[np.int64]) -> tuple[Scores, dict[str, Any]]:
        """Solve equation 1 on some examples, then tune."""
        start = solve(self.situation, self.inputs, chosen, float(self.settings["lambda"]))
        return self._tuned(start), {"examples": len(chosen)}

    def _tuned(self, start: Matrix) -> Scores:
        rate = float(self.settings["learning_rate"])
        tuned = tune_matrix(self.situation, self.inputs, start, rate)
        return ModelScores(self.situation.new, tuned)


def select_by_means(inputs: Vectors, count: int, seed: int) -> NDArray[np.int64]:
    """Choose min(count, n) examples, shape (count,), starting with each k-means cluster's medoid.

    Args:
        inputs: One row per example, (n, dim); only directions matter.
        count: Number of examples.
        seed: Seed of every draw.
    """
    from sklearn.cluster import KMeans  # imported late, because it is slow to load

    if count >= len(inputs):
        return np.arange(len(inputs))
    unit = unit_vectors(inputs)
    most = min(count, len(np.unique(unit, axis=0)))
    clusters = KMeans(most, random_state=seed).fit_predict(unit)
    return representatives(unit, clusters.astype(np.int64), count, seed)


def _filled(chosen: NDArray[np.int64], n: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the first 50 medoids, filled up to 50 with random other examples."""
    first = chosen[:EXAMPLES]
    rest = np.setdiff1d(np.arange(n), first)
    drawn = random.choice(rest, min(len(rest), EXAMPLES - len(first)), replace=False)
    return np.concatenate([first, drawn])
