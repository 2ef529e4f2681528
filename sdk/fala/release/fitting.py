"""What a vendor does with the SDK alone, in closed form: a global head, and a bridge."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.bundle.lexical import rounded
from fala.errors import DataError
from fala.examples import CLASSIFICATION, MATCHING, Example, Match, check_examples, unique_texts
from fala.model.bridge import Bridge
from fala.model.heads import Head, Vectors, example_inputs, label_name
from fala.model.lexical import Lexical
from fala.release.joint import Joint, fit_joint, left_out
from fala.release.joint_problem import Evidence as JointEvidence
from fala.release.paper.fit import Evidence, Fit, fit_paper
from fala.solver.design import DenseRows
from fala.solver.newton import Evidence as Evidences
from fala.solver.newton import Minimum, Problem, minimize
from fala.solver.threads import one_blas_thread
from fala.text.lexicon import Lexicon
from fala.text.ngrams import BUCKETS

# As multiples of the inputs' mean squared length. Public rows are many: the best penalties are
# smaller than a device's.
_GRID = np.logspace(-6, 1, 15)

# A bridge's penalties: how many texts of mean variance the pull to zero weighs.
_STRENGTHS = np.logspace(-2, 4, 13)
_HELD_OUT = 0.2  # share of the texts that chooses among them
# Standard deviation of a bias that is as good as free.
_FREE = 100.0
# Of more than two labels: folds that choose a penalty, and by how much of the least loss a weaker
# one is worse where none after it is tried.
_FOLDS, _ENOUGH = 3, 1.1
_ALIKE = 1e-12  # share of the mean square that rounding leaves of no variance at all


def fit_head(
    backbone: Backbone,
    examples: Sequence[Example],
    labels: Sequence[str | int],
    *,
    label_names: Sequence[str] | None = None,
    embeddings: Mapping[str, Vectors] | None = None,
    lexical: bool = True,
) -> Head:
    """Fit a global head on public rows.

    With words the embeddings' and the n-grams' weights are fitted together, each with a penalty
    from cross-validation over documents (``fala.release.joint``); a matcher's head then takes the
    candidate's own embedding beside u * v, too. The n-grams' weights are what a bundle holds.

    Without words a classifier's w and b minimize the penalised cross-entropy alone, and the
    penalty is chosen by leave-one-out over documents, of more than two labels by three folds of
    them: rows of the same example are one. A matcher's weights of u * v shrink to a multiple of the
    plain inner product, itself fitted first.

    Args:
        backbone: What embeds the texts.
        examples: n texts, or n ``Match`` objects.
        labels: n labels (names, or integers that spell them).
        label_names: The labels in the order wanted; None takes those seen, sorted, as numbers where
            all are.
        embeddings: Embeddings by text, if they are already known.
        lexical: Whether the head has a lexical view.

    Raises:
        DataError: If there are fewer than two labels, or an example or label cannot be used.
    """
    rows = _rows(backbone, examples, labels, label_names, embeddings)
    if lexical:
        return _joint_head(rows)[0]
    fitted = _fit(rows.inputs, rows.shares, rows.counts, _inner_product(rows))
    return Head(rows.task, rows.names, fitted.theta, fitted.bias)


def fit_joint_head(
    backbone: Backbone,
    examples: Sequence[Example],
    labels: Sequence[str | int],
    *,
    label_names: Sequence[str] | None = None,
    embeddings: Mapping[str, Vectors] | None = None,
    step: Callable[[], None] = lambda: None,
) -> tuple[Head, Joint]:
    """``fit_head`` with words, and what its cross-validation found.

    Args:
        backbone: See ``fit_head``.
        examples: See ``fit_head``.
        labels: See ``fit_head``.
        label_names: See ``fit_head``.
        embeddings: See ``fit_head``.
        step: Called after every step of the search; ``fala.release.joint.MOST_STEPS`` at most.

    Raises:
        DataError: See ``fit_head``.
    """
    return _joint_head(_rows(backbone, examples, labels, label_names, embeddings), step)


def left_out_logits(
    backbone: Backbone,
    examples: Sequence[Example],
    labels: Sequence[str | int],
    *,
    label_names: Sequence[str] | None = None,
    embeddings: Mapping[str, Vectors] | None = None,
    penalties: Sequence[float] | None = None,
    step: Callable[[], None] = lambda: None,
) -> NDArray[np.float64]:
    """Logits as a head with words has for documents that it was not fitted to, shape (n, C).

    Of three heads on two thirds of the documents each, every row's is the one that has not seen
    its document.

    Args:
        backbone: See ``fit_head``.
        examples: See ``fit_head``.
        labels: See ``fit_head``.
        label_names: See ``fit_head``.
        embeddings: See ``fit_head``.
        penalties: Those of a head that was fitted to the same rows (``Joint.penalties``); None
            chooses them first.
        step: Called after every step of that search, as by ``fit_joint_head``.

    Raises:
        DataError: See ``fit_head``; or penalties are of another kind of head.
    """
    rows = _rows(backbone, examples, labels, label_names, embeddings)
    evidence, _, _ = _joint_evidence(rows)
    chosen = fit_joint(evidence, step).penalties if penalties is None else penalties
    place = {example: position for position, example in enumerate(rows.examples)}
    found = left_out(evidence, chosen)
    return np.asarray(found[[place[example] for example in examples]])


@dataclass(frozen=True, eq=False)
class _Rows:
    """Public rows by distinct example.

    Attributes:
        task: Of the head.
        names: The labels' names, in the order wanted.
        examples: m distinct examples.
        shares: Class shares, shape (m, C).
        counts: How many rows each stands for, shape (m,).
        inputs: h or u * v, shape (m, d).
        embeddings: By text.
    """

    task: str
    names: tuple[str, ...]
    examples: list[Example]
    shares: NDArray[np.float64]
    counts: NDArray[np.float64]
    inputs: Vectors
    embeddings: Mapping[str, Vectors]


def _rows(
    backbone: Backbone,
    examples: Sequence[Example],
    labels: Sequence[str | int],
    label_names: Sequence[str] | None,
    embeddings: Mapping[str, Vectors] | None,
) -> _Rows:
    task = MATCHING if examples and isinstance(examples[0], Match) else CLASSIFICATION
    examples = check_examples(examples, task)
    if len(labels) != len(examples):
        raise DataError(f"{len(examples)} examples, but {len(labels)} labels")
    seen = {label_name(label) for label in labels}
    names = tuple(label_names or in_order(seen))
    if len(names) < 2 or len(seen) < 2:
        raise DataError("a head needs rows of two labels or more")
    if task == MATCHING and len(names) != 2:
        raise DataError("a matcher has two labels")
    if embeddings is None:
        texts = unique_texts(examples)
        embeddings = dict(zip(texts, backbone.encode(texts), strict=True))
    distinct = list(dict.fromkeys(examples))
    shares, counts = _counted(examples, labels, distinct, names)
    inputs = example_inputs(distinct, embeddings, backbone.dimension)
    if len(names) == 2:
        shares = shares[:, 1:]
    return _Rows(task, names, distinct, shares, counts, inputs, embeddings)


def _joint_head(rows: _Rows, step: Callable[[], None] = lambda: None) -> tuple[Head, Joint]:
    """A head with words, and what its cross-validation found."""
    evidence, lexicon, start = _joint_evidence(rows)
    found = fit_joint(evidence, step)
    weight = found.weight
    weight[:, : rows.inputs.shape[1]] += start
    words = rounded(Lexical(lexicon, found.words.astype(np.float32)))
    head = Head(
        rows.task, rows.names, weight, found.bias,
        lexical=words, dimension=rows.inputs.shape[1],
    )  # fmt: skip
    return head, found


def _joint_evidence(rows: _Rows) -> tuple[JointEvidence, Lexicon, float]:
    """What a head with words is fitted to, its n-grams, and the weight that u * v starts from."""
    documents = [one.candidate if isinstance(one, Match) else one for one in rows.examples]
    number = {text: position for position, text in enumerate(dict.fromkeys(documents))}
    lexicon = Lexicon.fit(unique_texts(rows.examples))
    nothing = np.zeros((len(rows.shares[0]), BUCKETS), dtype=np.float32)
    lexicon = rounded(Lexical(lexicon, nothing)).lexicon  # as a bundle holds it
    start = _inner_product(rows)
    parts = [rows.inputs]
    if rows.task == MATCHING:
        parts.append(np.stack([rows.embeddings[text] for text in documents]))
    evidence = JointEvidence(
        parts,
        lexicon.rows(documents),
        rows.shares,
        rows.counts,
        np.array([number[text] for text in documents]),
        start * rows.inputs.sum(axis=1, dtype=np.float64),
    )
    return evidence, lexicon, start


def _inner_product(rows: _Rows) -> float:
    """The multiple of the plain inner product that a matcher shrinks to; a classifier's is 0."""
    if rows.task != MATCHING:
        return 0.0
    product = _fit(rows.inputs.sum(axis=1, keepdims=True), rows.shares, rows.counts, 0.0)
    return float(product.theta[0, 0])


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels sorted, as numbers where all are integers: 2 before 10."""
    names = list(labels)
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        return sorted(names, key=int)
    return sorted(names)


def fit_bridge(source: str, old: Vectors, new: Vectors) -> Bridge:
    """Fit the map from an earlier backbone's embeddings to a new one's, by ridge regression.

    A fifth of the texts, drawn with a fixed seed, chooses the penalty and gives the residual
    variance; the map is then fitted again on all. ``fala-export bridge`` compares more forms of
    map on any amount of text, and is what a vendor's release should be made with.

    Args:
        source: The earlier backbone's ``Bundle.backbone_digest``.
        old: Its embeddings of n distinct public texts, shape (n, d_old).
        new: The new backbone's embeddings of the same, shape (n, d_new).

    Raises:
        DataError: If there are too few texts for so many dimensions, the arrays do not fit each
            other, a number is not finite, or the earlier backbone embeds all texts alike.
    """
    if old.ndim != 2 or new.ndim != 2 or len(old) != len(new):
        raise DataError(f"embeddings of the same texts expected, not {old.shape} and {new.shape}")
    n, dimension = old.shape
    # So many that the training texts cannot all be mapped exactly, offset and all.
    fewest = math.ceil((dimension + 2) / (1 - _HELD_OUT))
    if n < fewest:
        raise DataError(
            f"{n} distinct public texts are too few for a bridge from {dimension} dimensions: it "
            f"takes {fewest}"
        )
    x, y = old.astype(np.float64), new.astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("an embedding is not finite")
    held_out, training = np.split(
        np.random.default_rng(0).permutation(n), [math.floor(_HELD_OUT * n)]
    )
    with one_blas_thread():
        candidates = _ridge(x[training], y[training], _STRENGTHS)
        errors = [
            ((y[held_out] - x[held_out] @ matrix - offset) ** 2).mean(axis=0)
            for matrix, offset in candidates
        ]
        best = int(np.argmin([error.sum() for error in errors]))
        matrix, offset = _ridge(x, y, _STRENGTHS[best : best + 1])[0]
    return Bridge(
        source,
        matrix.astype(np.float32),
        offset.astype(np.float32),
        errors[best].astype(np.float32),
    )


def _ridge(
    x: NDArray[np.float64], y: NDArray[np.float64], strengths: NDArray[np.float64]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Matrix (d_old, d_new) and offset (d_new,) at every strength, from one eigendecomposition."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred = x - x_mean
    unit = np.mean(centred**2)
    if unit <= _ALIKE * np.mean(x**2):
        raise DataError("the earlier backbone embeds all public texts alike")
    values, vectors = np.linalg.eigh(centred.T @ centred)
    turned = vectors.T @ (centred.T @ (y - y_mean))
    fits = []
    for strength in strengths:
        # Values of what has no variance may fall below zero by rounding.
        matrix = vectors @ (turned / (np.maximum(values, 0.0) + strength * unit)[:, None])
        fits.append((matrix, y_mean - x_mean @ matrix))
    return fits


def _fit(
    inputs: Vectors, shares: NDArray[np.float64], counts: NDArray[np.float64], prior_mean: float
) -> Fit:
    scale = float(np.mean(inputs.astype(np.float64) ** 2)) * inputs.shape[1] or 1.0
    if shares.shape[1] > 1:
        return _fit_several(inputs.astype(np.float64), shares, counts, scale)
    features = inputs[:, None, :].astype(np.float64)
    with one_blas_thread():
        return fit_paper(
            Evidence.of(features, labels=shares, weights=counts),
            prior_mean=prior_mean,
            lambdas=_GRID * scale,
        )


def _fit_several(
    inputs: NDArray[np.float64],
    shares: NDArray[np.float64],
    counts: NDArray[np.float64],
    scale: float,
) -> Fit:
    """C > 2 labels: the same objective by ``fala.solver.newton``, whose time is C's, not C^3's.

    The penalty is chosen by folds: of several logits the one step that stands for leaving a
    document out is too sure of itself where penalties are weak.
    """
    n, classes = shares.shape
    evidence = Evidences(shares, counts, np.zeros((n, classes)), np.zeros(n))
    folds = np.array_split(np.random.default_rng(0).permutation(n), min(_FOLDS, n))
    parts = [(fold, np.setdiff1d(np.arange(n), fold)) for fold in folds]
    # n J has the penalty n lambda |theta|^2 = |delta|^2 / 2 for rows of this deviation.
    grid = {float(lambda_): 1.0 / math.sqrt(2 * n * lambda_) for lambda_ in scale * _GRID[::-1]}
    best, least = max(grid), math.inf
    left_out = np.zeros((n, classes))
    with one_blas_thread():
        for lambda_, deviation in grid.items():
            rows = _whitened(inputs, deviation)
            tried = np.zeros((n, classes))
            for fold, others in parts:
                if len(others):
                    found = _minimum(rows[others], evidence.take(others))
                    tried[fold] = rows[fold] @ found.point[:, :-1].T
            loss = evidence.loss(tried) / n
            if loss < least * (1 - 1e-9):
                best, least, left_out = lambda_, loss, tried
            elif loss > _ENOUGH * least:
                break
        found = _minimum(_whitened(inputs, grid[best]), evidence)
    theta, bias = grid[best] * found.point[:, :-2], _FREE * found.point[:, -2]
    return Fit(theta, bias, best, left_out, least)


def _whitened(inputs: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Inputs at their weights' deviation, beside a bias that is as good as free."""
    return np.hstack([inputs * deviation, np.full((len(inputs), 1), _FREE)])


def _minimum(rows: NDArray[np.float64], evidence: Evidences) -> Minimum:
    nothing = np.zeros_like(evidence.labels)
    return minimize(Problem(DenseRows(rows), nothing, nothing, evidence))


def _counted(
    examples: Sequence[Example],
    labels: Sequence[str | int],
    distinct: Sequence[Example],
    names: Sequence[str],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Label shares (m, number of labels) and rows (m,) of each distinct example."""
    column = {name: position for position, name in enumerate(names)}
    row = {example: position for position, example in enumerate(distinct)}
    counts = np.zeros((len(distinct), len(names)))
    for position, (example, label) in enumerate(zip(examples, labels, strict=True)):
        if str(label) not in column:
            raise DataError(
                f"label {label!r} of example {position} is not one of {', '.join(names)}"
            )
        counts[row[example], column[str(label)]] += 1
    total = counts.sum(axis=1)
    return counts / total[:, None], total
