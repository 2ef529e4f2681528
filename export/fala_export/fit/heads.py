"""The global head, fitted to public rows by a convex fit without backpropagation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

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
from fala.model.losses import Floats, check_arrays
from fala.solver.newton import Evidence
from fala.text.ngrams import BUCKETS, lexical_rows
from fala_export.fit.joint import Joint, fit_joint, left_out
from fala_export.fit.joint_rows import JointProblem, frequent, narrowed
from fala_export.fit.plain import PlainProblem
from fala_export.fit.streamed_rows import parts_of
from fala_export.fit.words import fit_idf
from fala_export.people.draw import searched
from fala_export.rows.user_rows import check_count, in_order, rating_of


class Kind(TypedDict):
    """The arguments of ``fit_head`` for the kind of labels."""

    rating: tuple[float, float] | None
    exclusive: bool


def kind_of(link: Link) -> Kind:
    """The arguments of ``fit_head`` for labels of a link."""
    rating = (link.low, link.high) if link.kind == "rating" else None
    return {"rating": rating, "exclusive": link.kind != "tags"}


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

    Or on embeddings alone, such as an app's own: ``fit_head(vectors, labels)``, with vectors of
    shape (n, d). Such a head is a classifier without words.

    With words the embeddings' and the n-grams' weights are fitted together, each with a penalty
    from cross-validation over documents (``fala_export.fit.joint``). A matcher's head then
    reads the candidate's embedding besides u * v. The n-grams' weights are rounded as in a bundle.

    Without words a classifier's w and b minimize the penalised cross-entropy. Leave-one-out over
    documents chooses the penalty; for more than two labels, three folds of documents do. Rows of
    the same example are one document. A matcher's weights of u * v shrink to a multiple of the
    plain inner product, which is fitted first.

    With ``rating`` the labels are numbers, and the squared error replaces the cross-entropy. The
    head's noise is the error on left-out documents, including differences between people.

    With ``exclusive=False`` the labels are sets of tags, and each tag has a logit of its own.

    Args:
        backbone: The backbone that embeds the texts. None fits words alone: the head's embeddings
            are one zero.
        examples: n texts, or n ``Match`` objects.
        labels: n labels, in any sequence: integers (1.0, NumPy's 1 and True are the integer 1), or
            strings; numbers of a rating; or sets of tags, which are integers or strings.
        label_names: The labels in the head's order and type, so that 1 is the string ``"1"`` where
            the vendor says so; None for those of the rows, sorted. For a rating its one name; None
            is ``"rating"``.
        embeddings: Embeddings by text, if available.
        lexical: Whether the head has a lexical view.
        rating: The least and the largest number of a rating; None for labels.
        exclusive: Whether an example has one label; False for tags.

    Raises:
        DataError: There are fewer than two labels, or more than 1,024, a tag is of no row or of
            all, or an example or label is invalid.
        BundleFormatError: The rating's range or name is invalid.

    Examples:
        >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.2, 0.8]], np.float32)
        >>> fala_export.fit_head(vectors, ["fine", "fine", "rude", "rude"])
        <Head: classification, fine, rude, 2 dimensions>
    """
    if isinstance(backbone, np.ndarray):
        if labels is not None:
            raise DataError("with vectors, call fit_head(vectors, labels)")
        rows = HeadTrainingSet.of_vectors(
            backbone, cast("Iterable[Label]", examples), label_names=label_names, rating=rating,
            exclusive=exclusive,
        )  # fmt: skip
        return fit_plain_head(rows)
    if labels is None:
        raise DataError(
            "labels are missing: fit_head(backbone, examples, labels), or, for a NumPy array of "
            "vectors, fit_head(vectors, labels)"
        )
    lexical = check_flag(lexical, "lexical")
    rows = HeadTrainingSet.of(
        backbone, cast("Iterable[Example]", examples), labels, label_names=label_names,
        embeddings=embeddings, rating=rating, exclusive=exclusive,
    )  # fmt: skip
    return fit_joint_head(rows)[0] if lexical else fit_plain_head(rows)


def fit_plain_head(rows: HeadTrainingSet) -> Head:
    """``fit_head`` without words."""
    theta, bias, _, loss = _fit(rows.inputs, rows, _inner_product(rows))
    return rows.head(theta, bias, loss)


@dataclass(frozen=True, eq=False)
class _Numbers:
    """The scaling of a rating's numbers to mean 0 and standard deviation 1.

    Attributes:
        low: The range's lower end.
        high: Its upper end.
        mean: The mean of all rows.
        deviation: Their standard deviation.
        within: Variance of rows around the mean of their example, in these units.
    """

    low: float
    high: float
    mean: float
    deviation: float
    within: float

    def link(self, loss: float | None) -> Rating:
        """The link of a head with a mean loss on left-out documents; None for no head."""
        square = 1.0 if loss is None else 2 * loss + self.within
        least = 2 * LEAST_NOISE * (self.high - self.low)
        return Rating(self.low, self.high, max(self.deviation * math.sqrt(square), least))


#: The link with which scaled numbers are fitted.
_UNIT = Rating(-1.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class HeadTrainingSet:
    """The training set of a head: public rows, by distinct example.

    Attributes:
        task: The head's task.
        names: The labels, in the head's order.
        examples: m distinct examples.
        positions: Each row's example, shape (n,).
        shares: Class shares, tags' shares, or a rating's numbers in the units of ``numbers``, shape
            (m, C).
        counts: Number of rows of each example, shape (m,).
        inputs: h or u * v, shape (m, d).
        embeddings: Embeddings by text.
        numbers: A rating's scaling; None for labels.
        link: The link of the fit.
    """

    task: str
    names: tuple[HeadLabel, ...]
    examples: list[Example]
    positions: NDArray[np.int64]
    shares: Floats
    counts: Floats
    inputs: Vectors
    embeddings: Mapping[str, Vectors]
    numbers: _Numbers | None
    link: Link

    @property
    def evidence(self) -> Evidence:
        """The examples' labels, as the solver takes them."""
        none = np.zeros_like(self.shares)
        return Evidence(self.shares, self.counts, none, np.zeros(len(none)), self.link)

    def details(self) -> dict[str, int]:
        """What the head is fitted to, for a manifest."""
        documents = len({document_of(example) for example in self.examples})
        return {"documents": documents, "rows": len(self.positions)}

    def head(
        self,
        weight: Floats,
        bias: Floats,
        loss: float | None,
        words: tuple[Vectors, Floats] | None = None,
    ) -> Head:
        """The head of a fit.

        Args:
            weight: w, shape (C, D).
            bias: b, shape (C,).
            loss: Mean loss on left-out documents; None if there is none.
            words: The n-grams' frequencies and weights (C, buckets); None without a lexical view.
        """
        link, unit = self.link, 1.0
        if self.numbers is not None:
            link, unit = self.numbers.link(loss), self.numbers.deviation
            bias = unit * bias + self.numbers.mean
        lexical = None
        if words is not None:
            lexical = rounded(Lexical(words[0], (unit * words[1]).astype(np.float32)))
        return Head(
            self.task, self.names, unit * weight, bias,
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
        rating: tuple[float, float] | None = None,
        exclusive: bool = True,
    ) -> HeadTrainingSet:
        """Gather rows; see ``fit_head``.

        Args:
            backbone: See ``fit_head``.
            examples: See ``fit_head``.
            labels: See ``fit_head``.
            label_names: See ``fit_head``.
            embeddings: Embeddings by text; a table's ``take`` reads them at once.
            rating: See ``fit_head``.
            exclusive: See ``fit_head``.

        Raises:
            DataError: See ``fit_head``.
        """
        encodes = embeddings is not None or hasattr(backbone, "encode")
        if backbone is not None and not (encodes and hasattr(backbone, "dimension")):
            raise DataError(
                f"backbone is an object that embeds texts, as from Bundle.backbone(), not "
                f"{type_of(backbone)}"
            )
        examples, labels = listed(examples, "examples"), listed(labels, "labels")
        task = MATCHING if examples and isinstance(examples[0], Match) else CLASSIFICATION
        examples = check_examples(examples, task)
        if len(labels) != len(examples):
            raise DataError(
                f"{counted(len(examples), 'example')}, but {counted(len(labels), 'label')}"
            )
        names, link = _kind_of(labels, label_names, rating, task, exclusive=exclusive)
        texts = unique_texts(examples)
        if backbone is None:
            backbone = ExternalEncoder("", 1, None)
            embeddings = dict.fromkeys(texts, np.zeros(1, dtype=np.float32))
        elif embeddings is None:
            embeddings = dict(zip(texts, backbone.encode(texts), strict=True))
        if not isinstance(embeddings, Mapping) or any(text not in embeddings for text in texts):
            raise DataError("embeddings are vectors by text, one for every text of the examples")
        distinct = list(dict.fromkeys(examples))
        number = {example: position for position, example in enumerate(distinct)}
        positions = np.array([number[example] for example in examples])
        take = getattr(embeddings, "take", None)
        if take is not None and task == CLASSIFICATION:
            inputs = take(distinct)
        else:
            inputs = example_inputs(distinct, embeddings, backbone.dimension)
        shares, counts, numbers = _shares_of(labels, positions, names, link, rating)
        return cls(
            task, names, distinct, positions, shares, counts, inputs, embeddings, numbers, link,
        )  # fmt: skip

    @classmethod
    def of_vectors(
        cls,
        vectors: Vectors,
        labels: Iterable[Label],
        *,
        label_names: Iterable[OneLabel] | None = None,
        rating: tuple[float, float] | None = None,
        exclusive: bool = True,
    ) -> HeadTrainingSet:
        """Embeddings (n, d) with their labels, for a head without words; maybe memory-mapped.

        Raises:
            DataError: See ``fit_head``.
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
            raise DataError(f"{counted(count, 'vector')}, but {counted(len(labels), 'label')}")
        names, link = _kind_of(labels, label_names, rating, CLASSIFICATION, exclusive=exclusive)
        positions = np.arange(count)
        shares, counts, numbers = _shares_of(labels, positions, names, link, rating)
        return cls(
            CLASSIFICATION, names, [], positions, shares, counts,
            vectors.astype(np.float32, copy=False), {}, numbers, link,
        )  # fmt: skip


def fit_joint_head(
    rows: HeadTrainingSet, step: Callable[[], None] = lambda: None
) -> tuple[Head, Joint]:
    """``fit_head`` with words, and the result of its cross-validation.

    Args:
        rows: The training data.
        step: Called after every step of the search, at most ``joint.MOST_STEPS`` times.
    """
    problem, idf, columns, start = _joint_problem(rows)
    joint = fit_joint(problem, step)
    weight = joint.weight.copy()
    weight[:, : rows.inputs.shape[1]] += start
    words = np.zeros((len(weight), BUCKETS))
    words[:, columns] = joint.words
    return rows.head(weight, joint.bias, joint.loss, (idf, words)), joint


def left_out_logits(
    rows: HeadTrainingSet,
    penalties: Sequence[float] | None = None,
    step: Callable[[], None] = lambda: None,
) -> Floats:
    """Cross-fitted logits of heads with words, shape (n, C).

    Three heads are fitted to two thirds of the documents each. A row's logits are those of the
    head that was fitted without its document.

    Args:
        rows: The training data.
        penalties: Penalties of a head fitted to the same rows (``Joint.penalties``); None chooses
            them first.
        step: Called after every step of that search, as by ``fit_joint_head``.

    Raises:
        DataError: There is only one document, or the penalties are of another kind of head.
    """
    problem, *_ = _joint_problem(rows)
    chosen = fit_joint(problem, step).penalties if penalties is None else penalties
    logits = np.asarray(left_out(problem, chosen)[rows.positions])
    if rows.numbers is None:
        return logits
    return rows.numbers.deviation * logits + rows.numbers.mean


def _joint_problem(
    rows: HeadTrainingSet,
) -> tuple[JointProblem, Vectors, NDArray[np.int64], float]:
    """The objective of a head with words.

    Returns:
        The objective; the n-grams' frequencies; the n-grams that are in the data, by its columns;
        and the start weight of u * v.
    """
    documents = [document_of(example) for example in rows.examples]
    number = {text: position for position, text in enumerate(dict.fromkeys(documents))}
    idf = fit_idf(unique_texts(rows.examples))
    zeros = np.zeros((len(rows.shares[0]), BUCKETS), dtype=np.float32)
    idf = rounded(Lexical(idf, zeros)).idf  # rounded as in a bundle
    start = _inner_product(rows)
    parts = [rows.inputs]
    if rows.task == MATCHING:
        parts.append(np.stack([rows.embeddings[text] for text in documents]))
    numbers = np.array([number[text] for text in documents])
    words = lexical_rows(idf, documents)
    columns = frequent(words, numbers)
    first = start * rows.inputs.sum(axis=1, dtype=np.float64)
    problem = JointProblem(parts, narrowed(words, columns), rows.evidence, numbers, first)
    return problem, idf, columns, start


def _inner_product(rows: HeadTrainingSet) -> float:
    """The multiple of the plain inner product that a matcher shrinks to; a classifier's is 0."""
    if rows.task != MATCHING:
        return 0.0
    theta, *_ = _fit(rows.inputs.sum(axis=1, keepdims=True), rows, 0.0)
    return float(theta[0, 0])


def _fit(
    inputs: Vectors, rows: HeadTrainingSet, prior_mean: float
) -> tuple[Floats, Floats, float, float]:
    """Fit a head without words; its theta shrinks to ``prior_mean``.

    The penalty is chosen by leave-one-out for two labels, else by folds: for several logits the
    one-step approximation of leave-one-out is too optimistic with weak penalties. Of many examples
    some, drawn, choose it.

    Returns:
        Theta (C, d), the biases (C,), the weight of |theta|^2, and the mean loss on left-out rows.
    """
    offset = np.zeros_like(rows.shares)
    if prior_mean:
        offset += prior_mean * inputs.sum(axis=1, dtype=np.float64, keepdims=True)
    data = PlainProblem(inputs, offset, rows.evidence)
    with one_blas_thread():
        chosen = searched(len(inputs))
        penalty, loss = (data if chosen is None else data.take(chosen)).chosen_penalty()
        theta, bias = data.weights(penalty)
    return theta + prior_mean, bias, penalty, loss


def _kind_of(
    labels: Sequence[Label],
    label_names: Iterable[OneLabel] | None,
    rating: tuple[float, float] | None,
    task: str,
    *,
    exclusive: bool,
) -> tuple[tuple[HeadLabel, ...], Link]:
    """All labels, and the link of the fit."""
    names = None if label_names is None else in_one_type(listed(label_names, "label_names"))
    link: Link = LABELS
    exclusive = check_flag(exclusive, "exclusive")
    if rating is not None and not exclusive:
        raise DataError("labels are ratings or tags, not both: leave rating or exclusive out")
    if rating is not None:
        names, link = names or ["rating"], _UNIT
    elif exclusive:
        names = _names(labels, names, task)
    else:
        if any(map(is_missing, labels)):
            raise DataError("a row without tags has an empty set, not None")
        tags = [tag for label in labels for tag in tags_of(label)]
        names, link = names or in_order(in_one_type(tags)), TAGS
        if not names:
            raise DataError("no row has a tag: a head needs rows with a tag and rows without")
    check_count(names)
    return checked_labels(names), link


def _shares_of(
    labels: Sequence[Label],
    positions: NDArray[np.int64],
    names: Sequence[HeadLabel],
    link: Link,
    rating: tuple[float, float] | None,
) -> tuple[Floats, Floats, _Numbers | None]:
    """Shares (m, C) and the number of rows (m,) by example; and a rating's scaling."""
    if rating is not None:
        return _scaled(labels, positions, names, rating)
    values = LABELS.numbers(labels, names) if link == LABELS else _tagged(labels, names)
    return *_means(values, positions), None


def _names(labels: Sequence[Label], names: list[HeadLabel] | None, task: str) -> list[HeadLabel]:
    """The labels that exclude one another, as given or sorted."""
    for position, label in enumerate(labels):
        if not isinstance(label, str) and integer_of(label) is None:
            raise DataError(
                f"a label is a name, or a whole number that equals it, and that of example "
                f"{position} is {shown(label)}; other numbers are ratings (rating=), sets of names "
                "are tags (exclusive=False)"
            )
    present = in_order(in_one_type(labels))
    names = present if names is None else names
    if len(names) < 2 or len(present) < 2:
        raise DataError("a head needs rows of two labels or more")
    if task == MATCHING and len(names) != 2:
        raise DataError("a matcher has two labels")
    return names


def _scaled(
    labels: Sequence[Label],
    positions: NDArray[np.int64],
    names: Sequence[HeadLabel],
    rating: tuple[float, float],
) -> tuple[Floats, Floats, _Numbers]:
    """Scaled means (m, 1), the number of rows (m,) by example, and the scaling."""
    ends = listed(rating, "rating")
    if len(ends) != 2:
        raise DataError("rating is the least and the largest number, as (1, 5)")
    low, high = ends
    values = rating_of(low, high).numbers(labels, names)[:, 0]
    if np.isnan(values).any() or not np.ptp(values):
        raise DataError("a head of ratings needs a number in each row, and two different ones")
    mean, deviation = float(values.mean()), float(values.std())
    values = (values - mean) / deviation
    means, counts = _means(values[:, None], positions)
    within = float(((values - means[positions, 0]) ** 2).mean())
    return means, counts, _Numbers(low, high, mean, deviation, within)


def _tagged(labels: Sequence[Label], names: Sequence[HeadLabel]) -> Floats:
    """Rows' tags, 0 or 1, (n, C)."""
    values = TAGS.numbers(labels, names)
    for number, share in enumerate(values.mean(axis=0), start=1):
        if not 0 < share < 1:
            raise DataError(
                f"tag {number} of {len(names)} is of {'all rows' if share else 'no row'}: a head "
                "needs rows with it and rows without"
            )
    return values


def _means(values: Floats, positions: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Means (m, C) and the number of rows (m,) by example."""
    counts = np.bincount(positions).astype(np.float64)
    sums = [np.bincount(positions, column) for column in values.T]
    return np.column_stack(sums) / counts[:, None], counts
