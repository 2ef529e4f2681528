"""The global head that a vendor fits to public rows, in closed form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from fala.arguments import listed
from fala.backbones import Backbone
from fala.backbones.external import ExternalEncoder
from fala.bundle.lexical import rounded
from fala.errors import DataError, shown
from fala.examples import CLASSIFICATION, MATCHING, Example, Match, check_examples, unique_texts
from fala.model.heads import Head, Vectors, example_inputs, label_name
from fala.model.lexical import Lexical
from fala.model.losses import Floats
from fala.release.joint import Joint, fit_joint, left_out
from fala.release.joint_rows import JointExamples
from fala.release.paper.fit import Evidence, fit_paper
from fala.solver.design import DenseRows
from fala.solver.newton import Evidence as Evidences
from fala.solver.newton import Problem, minimize
from fala.solver.threads import one_blas_thread
from fala.text.lexicon import Lexicon
from fala.text.ngrams import BUCKETS

# As multiples of the inputs' mean squared length. Public rows are many: the best penalties are
# smaller than a device's.
_GRID = np.logspace(-6, 1, 15)

# Standard deviation of a bias that is as good as free.
_FREE = 100.0
# Of more than two labels: folds that choose a penalty, and by how much of the least loss a weaker
# one is worse where none after it is tried.
_FOLDS, _ENOUGH = 3, 1.1


def fit_head(
    backbone: Backbone | Vectors,
    examples: Sequence[Example] | Sequence[str | int],
    labels: Sequence[str | int] | None = None,
    *,
    label_names: Sequence[str] | None = None,
    embeddings: Mapping[str, Vectors] | None = None,
    lexical: bool = True,
) -> Head:
    """Fit a global head on public rows: ``fit_head(backbone, examples, labels)``.

    Or on embeddings alone, as of an app's own encoder: ``fit_head(vectors, labels)``, with vectors
    of shape (n, d). Such a head is a classifier without words.

    With words the embeddings' and the n-grams' weights are fitted together, each with a penalty
    from cross-validation over documents (``fala.release.joint``). A matcher's head then takes the
    candidate's embedding beside u * v, too. The n-grams' weights are rounded as in a bundle.

    Without words a classifier's w and b minimize the penalised cross-entropy. Leave-one-out over
    documents chooses the penalty; of more than two labels, three folds of documents do. Rows of the
    same example are one document. A matcher's weights of u * v shrink to a multiple of the plain
    inner product, which is fitted first.

    Args:
        backbone: What embeds the texts.
        examples: n texts, or n ``Match`` objects.
        labels: n labels (names, or integers that spell them).
        label_names: The labels in the order wanted; None takes those seen, sorted, as numbers where
            all are.
        embeddings: Embeddings by text, if there are some already.
        lexical: Whether the head has a lexical view.

    Raises:
        DataError: If there are fewer than two labels, or an example or label cannot be used.

    Examples:
        >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.2, 0.8]], np.float32)
        >>> fala.fit_head(vectors, ["fine", "fine", "rude", "rude"])
        <Head: classification, fine, rude, 2 dimensions>
    """
    if isinstance(backbone, np.ndarray):
        if labels is not None:
            raise DataError("of vectors a head is fitted by fit_head(vectors, labels)")
        rows = _rows_of_vectors(backbone, cast("Sequence[str | int]", examples), label_names)
        lexical = False
    elif labels is None:
        raise DataError("labels are missing: fit_head(backbone, examples, labels)")
    else:
        rows = PublicRows.of(
            backbone, cast("Sequence[Example]", examples), labels,
            label_names=label_names, embeddings=embeddings,
        )  # fmt: skip
    if lexical:
        return fit_joint_head(rows)[0]
    theta, bias, _ = _fit(rows.inputs, rows.shares, rows.counts, _inner_product(rows))
    return Head(rows.task, rows.names, theta, bias)


def _rows_of_vectors(
    vectors: Vectors, labels: Sequence[str | int], label_names: Sequence[str] | None
) -> PublicRows:
    """Rows of embeddings, (n, d), each a document of its own."""
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise DataError(f"vectors are finite numbers of shape (n, d), not {vectors.shape}")
    embeddings = {str(row): vector for row, vector in enumerate(vectors.astype(np.float32))}
    backbone = ExternalEncoder("", vectors.shape[1], None)
    return PublicRows.of(
        backbone, list(embeddings), labels, label_names=label_names, embeddings=embeddings
    )


@dataclass(frozen=True, eq=False)
class PublicRows:
    """What a head is fitted to: public rows, by distinct example.

    Attributes:
        task: Of the head.
        names: The labels' names, in the order wanted.
        examples: m distinct examples.
        positions: Each given row's example, shape (n,).
        shares: Class shares, shape (m, C).
        counts: How many rows each stands for, shape (m,).
        inputs: h or u * v, shape (m, d).
        embeddings: By text.
    """

    task: str
    names: tuple[str, ...]
    examples: list[Example]
    positions: NDArray[np.int64]
    shares: Floats
    counts: Floats
    inputs: Vectors
    embeddings: Mapping[str, Vectors]

    @classmethod
    def of(
        cls,
        backbone: Backbone,
        examples: Sequence[Example],
        labels: Sequence[str | int],
        *,
        label_names: Sequence[str] | None = None,
        embeddings: Mapping[str, Vectors] | None = None,
    ) -> PublicRows:
        """Gather rows; see ``fit_head``.

        Raises:
            DataError: See ``fit_head``.
        """
        encodes = embeddings is not None or hasattr(backbone, "encode")
        if not (encodes and hasattr(backbone, "dimension")):
            raise DataError(
                f"backbone is what embeds texts, as Bundle.backbone() returns it, not a "
                f"{type(backbone).__name__}"
            )
        examples, labels = listed(examples, "examples"), listed(labels, "labels")
        task = MATCHING if examples and isinstance(examples[0], Match) else CLASSIFICATION
        examples = check_examples(examples, task)
        if len(labels) != len(examples):
            raise DataError(f"{len(examples)} examples, but {len(labels)} labels")
        if not all(isinstance(label, str | SupportsIndex) for label in labels):
            raise DataError("a label is a name, or an integer that spells it")
        seen = {label_name(label) for label in labels}
        names = in_order(seen)
        if label_names is not None:
            names = [label_name(name) for name in listed(label_names, "label_names")]
        if len(names) < 2 or len(seen) < 2:
            raise DataError("a head needs rows of two labels or more")
        if task == MATCHING and len(names) != 2:
            raise DataError("a matcher has two labels")
        if embeddings is None:
            texts = unique_texts(examples)
            embeddings = dict(zip(texts, backbone.encode(texts), strict=True))
        distinct = list(dict.fromkeys(examples))
        number = {example: position for position, example in enumerate(distinct)}
        positions = np.array([number[example] for example in examples])
        shares, counts = _counted(labels, positions, names)
        inputs = example_inputs(distinct, embeddings, backbone.dimension)
        return cls(task, tuple(names), distinct, positions, shares, counts, inputs, embeddings)


def fit_joint_head(rows: PublicRows, step: Callable[[], None] = lambda: None) -> tuple[Head, Joint]:
    """``fit_head`` with words, and the result of its cross-validation.

    Args:
        rows: What is fitted.
        step: Called after every step of the search; ``fala.release.joint.MOST_STEPS`` at most.
    """
    examples, lexicon, start = _joint_examples(rows)
    joint = fit_joint(examples, step)
    weight = joint.weight.copy()
    weight[:, : rows.inputs.shape[1]] += start
    words = rounded(Lexical(lexicon, joint.words.astype(np.float32)))
    head = Head(
        rows.task, rows.names, weight, joint.bias,
        lexical=words, dimension=rows.inputs.shape[1],
    )  # fmt: skip
    return head, joint


def left_out_logits(
    rows: PublicRows,
    penalties: Sequence[float] | None = None,
    step: Callable[[], None] = lambda: None,
) -> Floats:
    """Logits of a head with words for documents that it was not fitted to, shape (n, C).

    Three heads are fitted to two thirds of the documents each. A row's logits are those of the
    head that was fitted without its document.

    Args:
        rows: What is fitted.
        penalties: Those of a head that was fitted to the same rows (``Joint.penalties``); None
            chooses them first.
        step: Called after every step of that search, as by ``fit_joint_head``.

    Raises:
        DataError: There is but one document, or penalties are of another kind of head.
    """
    examples, _, _ = _joint_examples(rows)
    chosen = fit_joint(examples, step).penalties if penalties is None else penalties
    return np.asarray(left_out(examples, chosen)[rows.positions])


def _joint_examples(rows: PublicRows) -> tuple[JointExamples, Lexicon, float]:
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
    joint = JointExamples(
        parts,
        lexicon.rows(documents),
        rows.shares,
        rows.counts,
        np.array([number[text] for text in documents]),
        start * rows.inputs.sum(axis=1, dtype=np.float64),
    )
    return joint, lexicon, start


def _inner_product(rows: PublicRows) -> float:
    """The multiple of the plain inner product that a matcher shrinks to; a classifier's is 0."""
    if rows.task != MATCHING:
        return 0.0
    theta, _, _ = _fit(rows.inputs.sum(axis=1, keepdims=True), rows.shares, rows.counts, 0.0)
    return float(theta[0, 0])


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels sorted, as numbers where all are integers: 2 before 10."""
    names = list(labels)
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        return sorted(names, key=int)
    return sorted(names)


def _fit(
    inputs: Vectors, shares: Floats, counts: Floats, prior_mean: float
) -> tuple[Floats, Floats, float]:
    """Theta (C, d), the biases (C,) and the chosen penalty of a head without words."""
    x = inputs.astype(np.float64)
    scale = float(np.mean(x**2)) * x.shape[1] or 1.0
    with one_blas_thread():
        if shares.shape[1] > 1:
            return _fit_several(x, shares, counts, scale)
        evidence = Evidence.of(x[:, None, :], labels=shares, weights=counts)
        fit = fit_paper(evidence, prior_mean=prior_mean, lambdas=_GRID * scale)
        return fit.theta, fit.bias, fit.lambda_


def _fit_several(
    x: Floats, shares: Floats, counts: Floats, scale: float
) -> tuple[Floats, Floats, float]:
    """C > 2 labels: the same objective by ``fala.solver.newton``, whose time is C's, not C^3's.

    The penalty is chosen by folds: of several logits the one step that stands for leaving a
    document out is too optimistic where penalties are weak.
    """
    n = len(shares)
    nothing = np.zeros_like(shares)
    evidence = Evidences(shares, counts, nothing, np.zeros(n))
    folds = np.array_split(np.random.default_rng(0).permutation(n), min(_FOLDS, n))

    def problem(lambda_: float) -> Problem[DenseRows]:
        """J whose penalty |delta|^2 / 2 is n lambda |theta|^2, beside a bias as good as free."""
        rows = np.hstack([x / math.sqrt(2 * n * lambda_), np.full((n, 1), _FREE)])
        return Problem(DenseRows(rows), nothing, nothing, evidence)

    best, least = 0.0, math.inf
    for lambda_ in map(float, scale * _GRID[::-1]):
        whole, left_out = problem(lambda_), nothing.copy()
        for fold in folds:
            others = np.setdiff1d(np.arange(n), fold)
            if len(others):
                point = minimize(whole.take(others)).point
                left_out[fold] = whole.rows.take(fold).times(point[:, :-1])
        loss = evidence.loss(left_out) / n
        if loss < least * (1 - 1e-9):
            best, least = lambda_, loss
        elif loss > _ENOUGH * least:
            break
    point = minimize(problem(best)).point
    return point[:, :-2] / math.sqrt(2 * n * best), _FREE * point[:, -2], best


def _counted(
    labels: Sequence[str | int], positions: NDArray[np.int64], names: Sequence[str]
) -> tuple[Floats, Floats]:
    """Class shares (m, C) and the number of rows (m,) of the m examples at some positions."""
    column = {name: number for number, name in enumerate(names)}
    counts = np.zeros((positions.max() + 1, len(names)))
    for row, (position, label) in enumerate(zip(positions, labels, strict=True)):
        name = label_name(label)
        if name not in column:
            raise DataError(
                f"label {shown(name)} of example {row} is not one of {', '.join(names)}"
            )
        counts[position, column[name]] += 1
    total = counts.sum(axis=1)
    shares = counts / total[:, None]
    return shares[:, 1:] if len(names) == 2 else shares, total
