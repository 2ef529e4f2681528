"""Fit the global head to public rows by a convex fit, without backpropagation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.backbones.external import ExternalEncoder
from fala.base.errors import DataError, check_flag, counted, shown, type_of
from fala.base.examples import (
    CLASSIFICATION,
    MATCHING,
    Example,
    Match,
    check_examples,
    document_of,
    listed,
    unique_texts,
)
from fala.base.products import Floats
from fala.base.threads import one_blas_thread
from fala.bundle.writing import rounded
from fala.model.heads import Head, Lexical, Vectors, example_inputs
from fala.model.labels import (
    HeadLabel,
    Label,
    OneLabel,
    checked_labels,
    in_one_type,
    integer_of,
    is_missing,
    tags_of,
)
from fala.model.links import LABELS, LEAST_NOISE, TAGS, Link, Rating
from fala.model.losses import check_arrays
from fala.solver.newton import Evidence
from fala.text.ngrams import lexical_rows
from fala_export.fit.joint import Joint, fit_joint
from fala_export.fit.joint_rows import JointProblem
from fala_export.fit.plain import PlainProblem
from fala_export.fit.streamed_rows import parts_of
from fala_export.fit.words import fit_idf
from fala_export.people.draw import searched
from fala_export.rows.user_rows import check_count, in_order, rating_of


def fit_head(
    backbone: Backbone | Vectors | None,
    examples: Iterable[Example] | Iterable[Label],
    labels: Iterable[Label] | None = None,
    *,
    label_names: Iterable[OneLabel] | None = None,
    embeddings: Mapping[str, Vectors] | None = None,
    lexical: bool = True,
    rating: tuple[float, float] | None = None,
    exclusive: bool = True,
) -> Head:
    """Fit a global head on public rows: ``fit_head(backbone, examples, labels)``.

    The head can also be fitted to embeddings alone, such as an app's own: ``fit_head(vectors,
    labels)``, with vectors of shape (n, d). Such a head is a classifier without lexical features.

    With lexical features, the weights of the embeddings and of the n-grams are fitted together,
    each with a penalty from cross-validation over documents (``fala_export.fit.joint``). A
    matcher's head then reads the candidate's embedding in addition to u * v. The n-grams' weights
    are rounded as in a bundle.

    Without lexical features, a classifier's w and b minimize the penalized cross-entropy. The
    penalty is chosen by leave-one-out over documents, or, for more than two labels, by three folds
    of documents. Rows of the same example are one document. A matcher's weights of u * v shrink to
    a multiple of the plain inner product, which is fitted first.

    With ``rating``, the labels are numbers, and the squared error replaces the cross-entropy. The
    head's noise is the error on left-out documents, including differences between people.

    With ``exclusive=False``, the labels are sets of tags, and each tag has its own logit.

    Args:
        backbone: The backbone that embeds the texts. If None, only n-grams are fitted, and the
            head's embeddings are one zero.
        examples: n texts, or n ``Match`` objects.
        labels: n labels, in any sequence: integers (1.0, NumPy's 1 and True are the integer 1),
            strings, the numbers of a rating, or sets of tags, which are integers or strings.
        label_names: The labels in the head's order and type, so that 1 is the string ``"1"`` if the
            vendor says so. If None, the rows' labels are used, sorted. For a rating, its one name,
            by default ``"rating"``.
        embeddings: Embeddings by text, if available.
        lexical: Whether the head has a lexical view.
        rating: The least and the largest number of a rating; None for labels.
        exclusive: Whether an example has one label; False for tags.

    Raises:
        DataError: There are fewer than two labels or more than 1,024, a tag belongs to no row or to
            all rows, or an example or label is invalid.
        BundleFormatError: The rating's range or name is invalid.

    Examples:
        >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.2, 0.8]], np.float32)
        >>> fala_export.fit_head(vectors, ["fine", "fine", "rude", "rude"])
        <Head: classification, fine, rude, 2 dimensions>
    """
    link = _link_of(rating, exclusive)
    if isinstance(backbone, np.ndarray):
        if labels is not None:
            raise DataError("to fit a head to vectors, call fit_head(vectors, labels)")
        rows = HeadTrainingSet.of_vectors(
            backbone, cast("Iterable[Label]", examples), label_names=label_names, link=link
        )
        return fit_plain_head(rows)
    if labels is None:
        raise DataError(
            "labels are missing: call fit_head(backbone, examples, labels), or, for a NumPy "
            "array of vectors, fit_head(vectors, labels)"
        )
    lexical = check_flag(lexical, "lexical")
    rows = HeadTrainingSet.of(
        backbone, cast("Iterable[Example]", examples), labels, label_names=label_names,
        embeddings=embeddings, link=link,
    )  # fmt: skip
    return fit_joint_head(rows)[0] if lexical else fit_plain_head(rows)


def fit_plain_head(rows: HeadTrainingSet) -> Head:
    """Fit a head as ``fit_head`` does without lexical features."""
    theta, bias, loss = _fit(rows.inputs, rows, _inner_product(rows))
    return rows.head(theta, bias, loss)


def _link_of(rating: tuple[float, float] | None, exclusive: bool) -> Link:
    """Return the link that the arguments of ``fit_head`` mean."""
    exclusive = check_flag(exclusive, "exclusive")
    if rating is None:
        return LABELS if exclusive else TAGS
    if not exclusive:
        raise DataError(
            "labels must be ratings or tags, not both; pass either rating or exclusive=False"
        )
    ends = listed(rating, "rating")
    if len(ends) != 2:
        raise DataError("rating must be the least and the largest number, such as (1, 5)")
    return rating_of(*ends)


#: The link with which scaled numbers are fitted.
_UNIT = Rating(-1.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class HeadTrainingSet:
    """The training set of a head: public rows, grouped by distinct example.

    Attributes:
        task: The head's task.
        names: The labels, in the head's order.
        examples: m distinct examples.
        positions: The position of each row's example, shape (n,).
        shares: Class shares, tags' shares, or a rating's mean numbers, scaled; shape (m, C).
        counts: Number of rows of each example, shape (m,).
        inputs: The inputs h or u * v, shape (m, d).
        embeddings: Embeddings by text.
        link: The kind of labels; a rating's noise is not known yet.
        mean: Mean of a rating's numbers, which the fit scales to mean 0 and deviation 1.
        deviation: Standard deviation of a rating's numbers.
        within: Variance of a rating's scaled numbers around the mean of their example.
    """

    task: str
    names: tuple[HeadLabel, ...]
    examples: list[Example]
    positions: NDArray[np.int64]
    shares: Floats
    counts: Floats
    inputs: Vectors
    embeddings: Mapping[str, Vectors]
    link: Link
    mean: float = 0.0
    deviation: float = 1.0
    within: float = 0.0

    @property
    def evidence(self) -> Evidence:
        """The examples' labels, as the solver takes them."""
        none = np.zeros_like(self.shares)
        link = _UNIT if self.link.kind == "rating" else self.link
        return Evidence(self.shares, self.counts, none, np.zeros(len(none)), link)

    def values_of(self, labels: Sequence[Label]) -> Floats:
        """Return the labels of all rows as class shares or scaled numbers, shape (n, C)."""
        return (self.link.numbers(labels, self.names) - self.mean) / self.deviation

    def evidence_of(self, values: Floats, part: NDArray[np.bool_]) -> Evidence:
        """Return the evidence of some of the rows alone; an example without any has the weight 0.

        Args:
            values: The rows' labels, from ``values_of``.
            part: Whether each row counts, shape (n,).
        """
        shares, counts = _means(values[part], self.positions[part], len(self.shares))
        return replace(self.evidence, labels=shares, label_weights=counts)

    def details(self) -> dict[str, int]:
        """Describe what the head is fitted to, for a manifest."""
        documents = len({document_of(example) for example in self.examples})
        return {"documents": documents, "rows": len(self.positions)}

    def head(
        self,
        weight: Floats,
        bias: Floats,
        loss: float | None,
        words: tuple[Vectors, Floats] | None = None,
    ) -> Head:
        """Build the head of a fit.

        Args:
            weight: The weights w, shape (C, D).
            bias: The biases b, shape (C,).
            loss: Mean loss on left-out documents; None if it was not measured.
            words: The n-grams' frequencies and weights (C, buckets); None without a lexical view.
        """
        link, unit = self.link, self.deviation
        if link.kind == "rating":
            square = 1.0 if loss is None else 2 * loss + self.within
            least = 2 * LEAST_NOISE * (link.high - link.low)
            link = Rating(link.low, link.high, max(unit * math.sqrt(square), least))
        lexical = None
        if words is not None:
            lexical = rounded(Lexical(words[0], (unit * words[1]).astype(np.float32)))
        return Head(
            self.task, self.names, unit * weight, unit * bias + self.mean,
            lexical=lexical, dimension=self.inputs.shape[1], link=link,
        )  # fmt: skip

    @classmethod
    def of(
        cls,
        backbone: Backbone | None,
        examples: Iterable[Example],
        labels: Iterable[Label],
        *,
        label_names: Iterable[OneLabel] | None = None,
        embeddings: Mapping[str, Vectors] | None = None,
        link: Link = LABELS,
    ) -> HeadTrainingSet:
        """Gather rows; see ``fit_head``.

        Args:
            backbone: The backbone, as for ``fit_head``.
            examples: The examples, as for ``fit_head``.
            labels: The labels, as for ``fit_head``.
            label_names: The head's labels, as for ``fit_head``.
            embeddings: Embeddings by text; a table's ``take`` reads them together.
            link: The kind of labels.

        Raises:
            DataError: The rows are unusable; see ``fit_head``.
        """
        encodes = embeddings is not None or hasattr(backbone, "encode")
        if backbone is not None and not (encodes and hasattr(backbone, "dimension")):
            raise DataError(
                "backbone must be an object that embeds texts, such as Bundle.backbone() "
                f"returns, not {type_of(backbone)}"
            )
        examples, labels = listed(examples, "examples"), listed(labels, "labels")
        task = MATCHING if examples and isinstance(examples[0], Match) else CLASSIFICATION
        examples = check_examples(examples, task)
        if len(labels) != len(examples):
            raise DataError(
                f"there are {counted(len(examples), 'example')}, but "
                f"{counted(len(labels), 'label')}"
            )
        names = _names_of(labels, label_names, link, task)
        texts = unique_texts(examples)
        if backbone is None:
            backbone = ExternalEncoder("", 1, None)
            embeddings = dict.fromkeys(texts, np.zeros(1, dtype=np.float32))
        elif embeddings is None:
            embeddings = dict(zip(texts, backbone.encode(texts), strict=True))
        if not isinstance(embeddings, Mapping) or any(text not in embeddings for text in texts):
            raise DataError("embeddings must have a vector for every text of the examples")
        distinct = list(dict.fromkeys(examples))
        number = {example: position for position, example in enumerate(distinct)}
        positions = np.array([number[example] for example in examples])
        take = getattr(embeddings, "take", None)
        if take is not None and task == CLASSIFICATION:
            inputs = take(distinct)
        else:
            inputs = example_inputs(distinct, embeddings, backbone.dimension)
        shares, counts, *scaling = _shares_of(labels, positions, names, link)
        return cls(
            task, names, distinct, positions, shares, counts, inputs, embeddings, link, *scaling
        )

    @classmethod
    def of_vectors(
        cls,
        vectors: Vectors,
        labels: Iterable[Label],
        *,
        label_names: Iterable[OneLabel] | None = None,
        link: Link = LABELS,
    ) -> HeadTrainingSet:
        """Gather embeddings (n, d) and their labels, for a head without lexical features.

        The embeddings may be memory-mapped.

        Raises:
            DataError: The rows are unusable; see ``fit_head``.
        """
        check_arrays(vectors=vectors)
        if vectors.ndim != 2:
            raise DataError(f"vectors must be of shape (n, d), not {vectors.shape}")
        for part in parts_of(len(vectors)):
            finite = np.isfinite(vectors[part]).all(axis=1)
            if not finite.all():
                row = part.start + finite.argmin()
                raise DataError(f"vector {row} has a number that is not finite")
        labels = listed(labels, "labels")
        count = len(vectors)
        if len(labels) != count:
            raise DataError(
                f"there are {counted(count, 'vector')}, but {counted(len(labels), 'label')}"
            )
        names = _names_of(labels, label_names, link, CLASSIFICATION)
        positions = np.arange(count)
        shares, counts, *scaling = _shares_of(labels, positions, names, link)
        return cls(
            CLASSIFICATION, names, [], positions, shares, counts,
            vectors.astype(np.float32, copy=False), {}, link, *scaling,
        )  # fmt: skip


def fit_joint_head(
    rows: HeadTrainingSet, step: Callable[[], None] = lambda: None
) -> tuple[Head, Joint]:
    """Fit a head with lexical features, and return it with the result of its cross-validation.

    Args:
        rows: The training data.
        step: A function called after every step of the search, at most ``joint.MOST_STEPS`` times.
    """
    problem, idf, start = joint_problem(rows)
    joint = fit_joint(problem, step)
    weight = joint.weight.copy()
    weight[:, : rows.inputs.shape[1]] += start
    return rows.head(weight, joint.bias, joint.loss, (idf, joint.words)), joint


def joint_problem(rows: HeadTrainingSet) -> tuple[JointProblem, Vectors, float]:
    """Build the objective of a head with lexical features.

    Returns:
        The objective; the n-grams' frequencies; and the initial weight of u * v.
    """
    documents = [document_of(example) for example in rows.examples]
    number = {text: position for position, text in enumerate(dict.fromkeys(documents))}
    idf = fit_idf(unique_texts(rows.examples))  # They are rounded as in a bundle.
    start = _inner_product(rows)
    parts = [rows.inputs]
    if rows.task == MATCHING:
        parts.append(np.stack([rows.embeddings[text] for text in documents]))
    numbers = np.array([number[text] for text in documents])
    first = start * rows.inputs.sum(axis=1, dtype=np.float64)
    problem = JointProblem(parts, lexical_rows(idf, documents), rows.evidence, numbers, first)
    return problem, idf, start


def _inner_product(rows: HeadTrainingSet) -> float:
    """Return the multiple of the inner product that a matcher shrinks to; 0 for a classifier."""
    if rows.task != MATCHING:
        return 0.0
    theta, *_ = _fit(rows.inputs.sum(axis=1, keepdims=True), rows, 0.0)
    return float(theta[0, 0])


def _fit(inputs: Vectors, rows: HeadTrainingSet, prior_mean: float) -> tuple[Floats, Floats, float]:
    """Fit a head without lexical features, whose theta shrinks to ``prior_mean``.

    The penalty is chosen by leave-one-out for two labels, else by folds, because for several logits
    the one-step approximation of leave-one-out is too optimistic with weak penalties. If there are
    many examples, the penalty is chosen on a draw of them.

    Returns:
        The weights theta (C, d), the biases (C,), and the mean loss on left-out rows.
    """
    offset = np.zeros_like(rows.shares)
    if prior_mean:
        offset += prior_mean * inputs.sum(axis=1, dtype=np.float64, keepdims=True)
    data = PlainProblem(inputs, offset, rows.evidence)
    with one_blas_thread():
        chosen = searched(len(inputs))
        penalty, loss = (data if chosen is None else data.take(chosen)).chosen_penalty()
        theta, bias = data.weights(penalty)
    return theta + prior_mean, bias, loss


def _names_of(
    labels: Sequence[Label], label_names: Iterable[OneLabel] | None, link: Link, task: str
) -> tuple[HeadLabel, ...]:
    """Return all labels, in the head's order."""
    names = None if label_names is None else in_one_type(listed(label_names, "label_names"))
    if link.kind == "rating":
        names = names or ["rating"]
    elif link.kind == "labels":
        names = _names(labels, names, task)
    else:
        if any(map(is_missing, labels)):
            raise DataError("a row without tags must have an empty set, not None")
        tags = [tag for label in labels for tag in tags_of(label)]
        names = names or in_order(in_one_type(tags))
        if not names:
            raise DataError("no row has a tag, but a head needs rows with a tag and rows without")
    check_count(names)
    return checked_labels(names)


def _shares_of(
    labels: Sequence[Label],
    positions: NDArray[np.int64],
    names: Sequence[HeadLabel],
    link: Link,
) -> tuple[Floats, Floats, float, float, float]:
    """Return shares (m, C), the number of rows (m,) by example, and a rating's scaling.

    The scaling is the mean, the deviation, and the variance within an example; see
    ``HeadTrainingSet``.
    """
    values = link.numbers(labels, names)
    if link.kind != "rating":
        if link.kind == "tags":
            _check_tags(values)
        return *_means(values, positions), 0.0, 1.0, 0.0
    if np.isnan(values).any() or not np.ptp(values):
        raise DataError(
            "a head of ratings needs a number in each row, and at least two different numbers"
        )
    mean, deviation = float(values.mean()), float(values.std())
    values = (values - mean) / deviation
    means, counts = _means(values, positions)
    within = float(((values - means[positions]) ** 2).mean())
    return means, counts, mean, deviation, within


def _names(labels: Sequence[Label], names: list[HeadLabel] | None, task: str) -> list[HeadLabel]:
    """Return the labels that exclude one another, in the given order or sorted."""
    for position, label in enumerate(labels):
        if not isinstance(label, str) and integer_of(label) is None:
            raise DataError(
                "a label must be a name, or equal to a whole number, but the label of example "
                f"{position} is {shown(label)}; for ratings pass rating=, for sets of tags "
                "exclusive=False"
            )
    present = in_order(in_one_type(labels))
    names = present if names is None else names
    if len(names) < 2 or len(present) < 2:
        raise DataError("a head needs rows with two labels or more")
    if task == MATCHING and len(names) != 2:
        raise DataError("a matcher must have two labels")
    return names


def _check_tags(values: Floats) -> None:
    """Check that each tag belongs to some rows, but not to all; ``values`` are 0 or 1, (n, C)."""
    for number, share in enumerate(values.mean(axis=0), start=1):
        if not 0 < share < 1:
            raise DataError(
                f"tag {number} of {values.shape[1]} belongs to "
                f"{'all rows' if share else 'no row'}; a head needs rows with it and rows without"
            )


def _means(values: Floats, positions: NDArray[np.int64], count: int = 0) -> tuple[Floats, Floats]:
    """Return means (m, C) and the number of rows (m,) by example.

    Args:
        values: The values of the rows, shape (n, C).
        positions: The position of each row's example, shape (n,).
        count: Fewest examples m; the means of an example without rows are 0.
    """
    counts = np.bincount(positions, minlength=count).astype(np.float64)
    sums = [np.bincount(positions, column, count) for column in values.T]
    return np.column_stack(sums) / np.maximum(counts, 1.0)[:, None], counts
