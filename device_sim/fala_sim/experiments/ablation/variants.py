"""The paper's ablations (Tables 3 to 7) for one user, where only quality is asked.

All of them read embeddings that are known already, so nothing here is a replacement's cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import Head
from fala.release import fit_matrix
from fala_sim.methods.fala_paper import medoids, solve, tune_matrix
from fala_sim.methods.frozen import ModelScores, vendor_scores
from fala_sim.methods.matrix import Matrix
from fala_sim.methods.means import select_by_means
from fala_sim.methods.method import Scores
from fala_sim.situation import Release, Situation, Vectors

#: Table 4: examples of k-means and of FaLA-K, the paper's best for BERT.
EXAMPLES = 50
#: Table 5.
OBJECTIVES = ("ce", "mse", "mse+ce")
LAMBDAS = ("0.0001", "0.001", "0.01", "0.1", "0")
#: Table 7.
TOP_K = (10, 50, 100, 250)

# Stands for Table 5's lambda of 0, as a multiple of the features' mean squared length: equation 1
# has no single solution without a penalty, where examples are fewer than d.
_LIMIT = 1e-8

_STARTS = ("random", "full", "kmeans", "fala-k", "fala")

Row = tuple[str, Scores, dict[str, Any]]


def variants() -> list[str]:
    """The names of all rows, in the order of ``ablations``."""
    return [
        "table3-old-global",
        "table3-old-personal",
        *(f"table4-{start}" for start in _STARTS),
        *(f"table5-{objective}-{lambda_}" for objective in OBJECTIVES for lambda_ in LAMBDAS),
        "table6-own-labels",
        "table6-fala",
        *(f"table7-{top_k}" for top_k in TOP_K),
    ]


def ablations(situation: Situation, settings: Mapping[str, float | int | str]) -> Iterator[Row]:
    """All rows of one user.

    Each start of the matrix (Table 4) and each objective (Table 5) is followed by the same gradient
    tuning as in ``fala-paper``. That Table 5 is tuned as well is read from its figures: the one of
    news, BERT, MSE and lambda 0.0001 is that of FaLA in Tables 2 and 4.

    A user without examples has the vendor's model in every row of the new backbone.

    Args:
        situation: The user's.
        settings: Those chosen for ``fala-paper``.

    Yields:
        A variant's name, its scores, and what its record says beside them: ``clusters`` where
        there are any, and ``examples``, how many the matrix was solved on.
    """
    yield from _table3(situation)
    if not situation.user.train:
        for variant in variants()[2:]:
            yield variant, vendor_scores(situation), {}
        return
    inputs = situation.new.inputs(situation.user.train)
    chosen = medoids(situation, inputs, int(settings["top_k"]))
    yield from _table4(situation, settings, inputs, chosen)
    yield from _table5(situation, settings, inputs, chosen)
    yield from _table6(situation, settings, inputs, chosen)
    yield from _table7(situation, settings, inputs)


def _table3(situation: Situation) -> Iterator[Row]:
    """The old backbone: the vendor's head, and the personal model."""
    old = situation.old
    yield "table3-old-global", ModelScores(old, old.head.vendor_model()), {}
    yield "table3-old-personal", ModelScores(old, situation.personal), {}


def _table4(
    situation: Situation,
    settings: Mapping[str, float | int | str],
    inputs: Vectors,
    chosen: NDArray[np.int64],
) -> Iterator[Row]:
    """What the matrix starts from."""
    random = np.random.default_rng(situation.seed)
    head, n = situation.new.head, len(inputs)
    # Uniform within 0 and 1, torch.rand: the paper does not say how. With random signs as well
    # nothing of the vendor's head would be left.
    theta = random.random(head.weight.shape)
    start = Matrix(head, theta, head.bias)
    yield "table4-random", _tuned(situation, settings, inputs, start), {"examples": 0}

    # "A multitude of examples, equivalent to the dimension of the matrix", where there are enough.
    full = random.choice(n, min(n, head.dimension), replace=False)
    yield "table4-full", *_solved(situation, settings, inputs, full)

    means = select_by_means(inputs, EXAMPLES, situation.seed)
    yield "table4-kmeans", *_solved(situation, settings, inputs, means)

    clusters = {"clusters": len(chosen)}
    filled = _filled(chosen, n, random)
    scores, extra = _solved(situation, settings, inputs, filled)
    yield "table4-fala-k", scores, extra | clusters
    scores, extra = _solved(situation, settings, inputs, chosen)
    yield "table4-fala", scores, extra | clusters


def _filled(chosen: NDArray[np.int64], n: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The first 50 medoids, filled up to 50 at random from the remaining examples."""
    kept = chosen[:EXAMPLES]
    rest = np.setdiff1d(np.arange(n), kept)
    more = random.choice(rest, min(len(rest), EXAMPLES - len(kept)), replace=False)
    return np.concatenate([kept, more])


def _table5(
    situation: Situation,
    settings: Mapping[str, float | int | str],
    inputs: Vectors,
    chosen: NDArray[np.int64],
) -> Iterator[Row]:
    """The objective by lambda, on the same representatives, from theta0 = 0 with the vendor's b.

    Where both terms are there, ``fit_matrix`` lets an old logit weigh as much as a label.
    """
    head = situation.new.head
    examples = [situation.user.train[index] for index in chosen.tolist()]
    logits = situation.old_logits(examples)
    shares = situation.label_shares()[chosen]
    length = float(np.mean(np.sum(head.features(inputs[chosen]) ** 2, axis=2))) or 1.0
    for objective in OBJECTIVES:
        for name in LAMBDAS:
            start = fit_matrix(
                head,
                inputs[chosen],
                logits=None if objective == "ce" else logits,
                labels=None if objective == "mse" else shares,
                prior="zero",
                lambda_=float(name) or _LIMIT * length,
            )
            scores = _tuned(situation, settings, inputs, Matrix.of(start))
            counts = {"examples": len(chosen), "clusters": len(chosen)}
            yield f"table5-{objective}-{name}", scores, counts


def _table6(
    situation: Situation,
    settings: Mapping[str, float | int | str],
    inputs: Vectors,
    chosen: NDArray[np.int64],
) -> Iterator[Row]:
    """Without any global training against FaLA.

    The paper fine-tunes a backbone that saw no task data. Here a head is fitted on the user's own
    labels, the backbone frozen: logistic with a ridge to zero, its penalty by exact leave-one-out.
    b is the log-odds of the user's labels, and a matcher takes the mean of the history, since
    weights, bias and attention would be the vendor's.
    """
    new = situation.new
    shares = situation.label_shares()
    # Half an example of each label more: no label's odds are 0.
    counts = shares.sum(axis=0) + 0.5
    if len(counts) == 1:
        counts = counts / (len(shares) + 1 - counts)
    bias = np.log(counts)
    blank = Head(new.head.task, new.head.labels, np.ones_like(new.head.weight), bias)
    without = Release(new.name, new.path, blank, new.embeddings, new.flops, new.tokens)
    user_model = fit_matrix(
        blank, without.inputs(situation.user.train), labels=shares, prior="zero"
    )
    yield "table6-own-labels", ModelScores(without, user_model), {}
    scores, extra = _solved(situation, settings, inputs, chosen)
    yield "table6-fala", scores, extra | {"clusters": len(chosen)}


def _table7(
    situation: Situation, settings: Mapping[str, float | int | str], inputs: Vectors
) -> Iterator[Row]:
    """How many clusters a user has, by top k."""
    for top_k in TOP_K:
        chosen = medoids(situation, inputs, top_k)
        scores, extra = _solved(situation, settings, inputs, chosen)
        yield f"table7-{top_k}", scores, extra | {"clusters": len(chosen)}


def _solved(
    situation: Situation,
    settings: Mapping[str, float | int | str],
    inputs: Vectors,
    chosen: NDArray[np.int64],
) -> tuple[Scores, dict[str, Any]]:
    """Equation 1 on the chosen examples, then the tuning."""
    start = solve(situation, inputs, chosen, float(settings["lambda"]))
    return _tuned(situation, settings, inputs, start), {"examples": len(chosen)}


def _tuned(
    situation: Situation,
    settings: Mapping[str, float | int | str],
    inputs: Vectors,
    start: Matrix,
) -> Scores:
    rate = float(settings["learning_rate"])
    return ModelScores(situation.new, tune_matrix(situation, inputs, start, rate))
