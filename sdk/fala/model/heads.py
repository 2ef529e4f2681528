"""The vendor's head, and the personal model that it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import (
    BundleFormatError,
    DataError,
    UsageError,
    counted,
    shown,
    type_of,
)
from fala.base.examples import MATCHING, Example, Match, listed, texts_of
from fala.model.labels import (
    HeadLabel,
    Label,
    OneLabel,
    checked_labels,
    finder,
    named,
    natural_positive,
)
from fala.model.links import LABELS, Link
from fala.model.losses import check_arrays, softmax
from fala.text.ngrams import BUCKETS, CachedRows, lexical_rows
from fala.text.sparse_rows import SparseRows

Vectors = NDArray[np.float32]

# The largest share by which a weight may differ from the vendor's weight times a factor and still
# be stored as that product.
_SAME = 1e-6


@dataclass(frozen=True, eq=False)
class Lexical:
    """The lexical view of a head.

    Attributes:
        idf: Inverse document frequencies of n-grams, float32, shape (BUCKETS,), from 0 up.
        weight: The vendor's v, float32, shape (C, BUCKETS).

    Raises:
        BundleFormatError: If an array is of another shape, negative, or not finite.
    """

    idf: NDArray[np.floating]
    weight: NDArray[np.float32]

    def __post_init__(self) -> None:
        idf = np.asarray(self.idf, dtype=np.float32)
        if idf.shape != (BUCKETS,) or not np.isfinite(idf).all() or (idf < 0).any():
            raise BundleFormatError(
                f"a lexical view has {BUCKETS} inverse document frequencies of 0 or more"
            )
        if self.weight.ndim != 2 or self.weight.shape[1] != BUCKETS:
            raise BundleFormatError(
                f"a lexical view has a weight of shape (C, {BUCKETS}), not {self.weight.shape}"
            )
        if self.weight.dtype != np.float32 or not np.isfinite(self.weight).all():
            raise BundleFormatError("a lexical view's weights are not finite in float32")
        object.__setattr__(self, "idf", _read_only(idf))
        object.__setattr__(self, "weight", _read_only(self.weight))

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same view, number by number."""
        if not isinstance(other, Lexical):
            return NotImplemented
        return same_arrays((self.idf, self.weight), (other.idf, other.weight))


class Head:
    """Turns embeddings into inputs, features and logits.

    An example's *input* x is its embedding h for a classifier, and u * v for a matcher: u is the
    attention-weighted sum of the embeddings of the user's history, v the candidate's embedding. A
    head of twice as many weights has both: x = [u * v, v]. Its features are
    e = w * x, its logit z = theta . e + b; theta = 1 and the vendor's b is the vendor's own model.
    A lexical view adds the text's, or the candidate's, own n-grams to the logit. Two labels have
    one logit, the second label's; C > 2 labels have C, and so have C tags. A rating has one logit,
    its value, and one label, its name.

    Args:
        task: ``"classification"`` or ``"matching"``.
        labels: The labels, all integers (booleans are integers) or all strings; a rating's name.
        weight: w, shape (C, D), C = 1 for two labels; D = d, or 2 d for a matcher of [u * v, v].
        bias: The vendor's b, shape (C,).
        query: The matcher's attention query, shape (d,); None takes the mean of the history.
        lexical: The vendor's weights of n-grams; None without a lexical view.
        dimension: d, where it is not D.
        link: The meaning of the logits: ``Labels`` that exclude one another, ``Tags`` that do not,
            or a ``Rating``.

    Raises:
        BundleFormatError: If the arrays do not fit the labels, a number is not finite, the query's
            dimension is not d, or D fits none.
    """

    def __init__(
        self,
        task: str,
        labels: Sequence[HeadLabel],
        weight: NDArray[Any],
        bias: NDArray[Any],
        query: NDArray[Any] | None = None,
        lexical: Lexical | None = None,
        dimension: int | None = None,
        link: Link = LABELS,
    ) -> None:
        check_arrays(weight=weight, bias=bias)
        if query is not None:
            check_arrays(query=query)
        self.task = task
        #: Python's integers or strings, in the order of the logits.
        self.labels = checked_labels(labels)
        self.link = link
        logits = link.count(self.labels)
        if task == MATCHING and logits != 1:
            raise BundleFormatError(
                "a matcher must have one logit: two labels, one tag, or a rating"
            )
        if weight.ndim != 2 or weight.shape[0] != logits or bias.shape != (logits,):
            raise BundleFormatError(
                f"with {counted(len(self.labels), 'label')} weight and bias are of shape "
                f"({logits}, d) and ({logits},), not {weight.shape} and {bias.shape}"
            )
        columns = int(weight.shape[1])
        #: d, the length of its embeddings.
        self.dimension = columns if dimension is None else dimension
        if columns != self.dimension and (task, columns) != (MATCHING, 2 * self.dimension):
            raise BundleFormatError(
                f"a weight of shape {weight.shape} does not fit embeddings of "
                f"{counted(self.dimension, 'dimension')}"
            )
        if query is not None and query.shape != (self.dimension,):
            raise BundleFormatError(
                f"a query of shape ({self.dimension},) expected, not {query.shape}"
            )
        #: Columns of the inputs that are one block of features each.
        self.parts = tuple(
            slice(start, start + self.dimension) for start in range(0, columns, self.dimension)
        )
        if lexical is not None and len(lexical.weight) != logits:
            raise BundleFormatError(
                f"a lexical view of {counted(len(lexical.weight), 'logit')} for a head of {logits}"
            )
        self.lexical = lexical
        self.weight = _finite(weight)
        self.bias = _finite(bias)
        self.query = None if query is None else _finite(query)

    def inputs(self, examples: Sequence[Example], embeddings: Mapping[str, Vectors]) -> Vectors:
        """Return the inputs of some examples.

        Args:
            examples: n examples of the head's task.
            embeddings: The embedding (d,) of every text in them.

        Returns:
            x, shape (n, D).
        """
        candidate = len(self.parts) > 1
        return example_inputs(examples, embeddings, self.dimension, self.query, candidate=candidate)

    def ngrams(
        self, examples: Sequence[Example], last: CachedRows | None = None
    ) -> SparseRows | None:
        """Return the n-grams of some texts, or of matches' candidates; None without a lexical view.

        Args:
            examples: The texts or matches.
            last: A cache of the last rows.
        """
        if self.lexical is None:
            return None
        texts = [texts_of(example)[0] for example in examples]
        idf = self.lexical.idf
        return lexical_rows(idf, texts) if last is None else last.of(idf, texts)

    def features(self, inputs: Vectors) -> NDArray[np.float64]:
        """Return E = w * x, shape (n, C, D), in float64 for the solvers."""
        return inputs[:, None, :].astype(np.float64) * self.weight

    def vendor_model(self) -> PersonalModel:
        """Return the vendor's own model: omega = w and the vendor's bias."""
        return PersonalModel(self, self.weight, self.bias)

    @property
    def constant(self) -> bool:
        """Whether all examples have the same logits, so that it knows nothing of the labels."""
        has_ngrams = self.lexical is not None and self.lexical.weight.any()
        return not has_ngrams and not self.weight.any()

    @property
    def described(self) -> str:
        """The head's task and labels, in words."""
        return f"{self.task} with {self.link.described(self.labels)}"

    def without_ngrams(self) -> Head:
        """Return the same head without its lexical view."""
        return self._changed(self.labels, self.weight, self.bias, None)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels' names: equal for heads whose labels are equal in either type."""
        return tuple(map(str, self.labels))

    def in_order(self, labels: Sequence[HeadLabel]) -> Head:
        """Return the same head with its labels in another order.

        Args:
            labels: All of the head's labels, or equal ones of the other type.

        Raises:
            DataError: The labels are not the head's labels.
        """
        names = [str(label) for label in labels]
        if sorted(names) != sorted(self.names):
            raise DataError(f"{named(labels)} are not the labels {named(self.labels)}")
        rows = [self.names.index(name) for name in names]
        if rows == [*range(len(rows))]:
            return self
        of_two = len(self.bias) == 1  # the second label's logit

        def turned(array: Vectors) -> Vectors:
            return -array if of_two else array[rows]

        lexical = self.lexical
        if lexical is not None:
            lexical = Lexical(lexical.idf, turned(lexical.weight))
        own = [self.labels[row] for row in rows]
        return self._changed(own, turned(self.weight), turned(self.bias), lexical)

    def _changed(
        self,
        labels: Sequence[HeadLabel],
        weight: Vectors,
        bias: Vectors,
        lexical: Lexical | None,
    ) -> Head:
        return Head(self.task, labels, weight, bias, self.query, lexical, self.dimension, self.link)

    def __eq__(self, other: object) -> bool:
        """Return whether the other head has the same logits for the same labels of one task."""
        if not isinstance(other, Head):
            return NotImplemented
        return (self.task, self.labels, self.lexical, self.link) == (
            other.task, other.labels, other.lexical, other.link,
        ) and same_arrays(
            (self.weight, self.bias, self.query), (other.weight, other.bias, other.query)
        )  # fmt: skip

    def __repr__(self) -> str:
        words = "" if self.lexical is None else " and words"
        size = counted(self.dimension, "dimension")
        return f"<Head: {self.task}, {named(self.labels)}, {size}{words}>"

    def check_exclusive(self, what: str) -> None:
        """Check that the labels exclude one another.

        Args:
            what: Names the caller's option, for the error.

        Raises:
            DataError: They do not, or are ratings.
        """
        if self.link.kind != "labels":
            of = self.link.described(self.labels)
            raise DataError(f"{what} is for labels that exclude one another, not for {of}")

    def label_of(self, value: OneLabel, what: str) -> HeadLabel:
        """Return the label that an argument equals; see ``finder``.

        Args:
            value: An argument of the caller.
            what: Names the argument, for the error.

        Raises:
            DataError: The argument equals none of the labels.
        """
        if (label := finder(self.labels)(value)) is None:
            raise DataError(f"{what} must be one of {named(self.labels)}, not {shown(value)}")
        return label

    def positive(self, label: OneLabel | None) -> HeadLabel | None:
        """Return the label by which ``rank`` orders and whose threshold ``predict`` takes.

        Args:
            label: The app's choice. If None, the natural label of two is used (see
                ``natural_positive``), or else the second one; among more labels there is none.

        Raises:
            DataError: The choice is not one of the labels, or they do not exclude one another.
        """
        if label is None:
            if self.link.kind != "labels" or len(self.labels) != 2:
                return None
            natural = natural_positive(self.labels)
            return self.labels[1] if natural is None else natural
        self.check_exclusive("positive")
        return self.label_of(label, "positive")

    def kept_positive(self, chosen: str | None) -> HeadLabel | None:
        """Return the positive label, given the name of the one chosen for an earlier head."""
        kept = None if chosen is None else finder(self.labels)(chosen)
        return self.positive(None) if kept is None else kept

    def label_shares(self, labels: Iterable[Label]) -> NDArray[np.float64]:
        """Return labels as class shares, tags, or ratings, (n, C); NaN for a missing label.

        Args:
            labels: n labels, in any sequence; None and NaN stand for a missing label.

        Raises:
            DataError: If a label is not one of the head's; the error names its position.
        """
        return self.link.numbers(listed(labels, "labels"), self.labels)


@dataclass(frozen=True, eq=False)
class OwnNgrams:
    """A user's weights v of n-grams: the vendor's weights times a factor, and some of the user's.

    A fit gives the n-grams of the user's texts weights of their own. All other weights keep the
    vendor's direction, because the slope a moves them by one factor, so they need no memory.

    Attributes:
        factor: The factor of the vendor's weights, shape (C,).
        buckets: The n-grams with weights of their own, uint16, ascending, shape (m,).
        weight: The weights of these n-grams, float32, shape (C, m).
    """

    factor: Vectors
    buckets: NDArray[np.uint16]
    weight: Vectors

    def __post_init__(self) -> None:
        for name in ("factor", "buckets", "weight"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))

    @classmethod
    def of(cls, weight: Vectors, vendor: Vectors) -> OwnNgrams:
        """Return a weight v, shape (C, buckets), in this form, to float32's precision.

        Args:
            weight: The weight v.
            vendor: The vendor's weight, of the same shape.
        """
        factor = np.ones(len(vendor), dtype=np.float32)
        for row, (ours, theirs) in enumerate(zip(weight, vendor, strict=True)):
            if np.any(used := theirs != 0):
                # Most of the vendor's n-grams are in none of the user's texts.
                factor[row] = np.median(ours[used] / theirs[used].astype(np.float64))
        scaled = factor[:, None] * vendor
        # A number that is not finite is no near one: it stays, to be refused.
        near = np.abs(weight - scaled) <= _SAME * np.abs(scaled)
        buckets = np.flatnonzero(~near.all(axis=0))
        return cls(factor, buckets.astype(np.uint16), weight[:, buckets].copy())

    def dense(self, vendor: Vectors) -> Vectors:
        """Return all weights v, shape (C, buckets), given the vendor's weights.

        Raises:
            DataError: These weights are for another number of logits.
        """
        if len(self.factor) != len(vendor):
            raise DataError(
                f"weights of n-grams for {counted(len(self.factor), 'logit')}, the head has "
                f"{len(vendor)}"
            )
        weight = self.factor[:, None] * vendor
        weight[:, self.buckets] = self.weight
        return weight

    def at(self, vendor: Vectors, buckets: NDArray[np.int32]) -> Vectors:
        """Return v at some buckets (nnz,), shape (C, nnz), given the vendor's (C, buckets)."""
        if len(buckets) > len(self.buckets):
            return self.dense(vendor)[:, buckets]
        # A prediction of a few texts touches little of the large arrays.
        weight = self.factor[:, None] * vendor[:, buckets]
        place = self.buckets.searchsorted(buckets.astype(np.uint16))
        own = self.buckets.take(place, mode="clip") == buckets
        weight[:, own] = self.weight[:, place[own]]
        return weight


class PersonalModel:
    """A head with a user's own weights omega, v and bias b: z = omega . x + v . ngrams + b.

    The paper's personal matrix is theta = omega / w. Its product with the head's weights is stored
    instead, so that the vendor's weights may be tiny, or 0.

    Args:
        head: The vendor's head.
        weight: omega, shape (C, D).
        bias: b, shape (C,).
        lexical: v for a head with a lexical view, as an array (C, buckets) or as ``OwnNgrams``;
            None takes the vendor's.

    Attributes:
        head, weight, bias: The arguments, in float32.
        ngrams: v in short; None if it is the vendor's, or the head has no lexical view.

    Raises:
        DataError: If a shape does not fit the head, or a number is not finite in float32.
    """

    def __init__(
        self,
        head: Head,
        weight: NDArray[Any],
        bias: NDArray[Any],
        lexical: NDArray[Any] | OwnNgrams | None = None,
    ) -> None:
        if not isinstance(head, Head):
            raise UsageError(f"head must be a Head, not {type_of(head)}")
        check_arrays(weight=weight, bias=bias)
        if lexical is not None and not isinstance(lexical, OwnNgrams):
            check_arrays(lexical=lexical)
        if weight.shape != head.weight.shape or bias.shape != head.bias.shape:
            raise DataError(
                f"weights of shape {head.weight.shape} and biases {head.bias.shape} fit the head, "
                f"not {weight.shape} and {bias.shape}"
            )
        self.head = head
        with np.errstate(over="ignore", invalid="ignore"):
            self.weight: Vectors = _read_only(weight.astype(np.float32))
            self.bias: Vectors = _read_only(bias.astype(np.float32))
            self.ngrams = self._in_short(lexical)
            parts = [part for part in (self.weight, self.bias, self.lexical) if part is not None]
        if not all(np.isfinite(part).all() for part in parts):
            raise DataError("the personal model is not finite in float32")

    def _in_short(self, lexical: NDArray[Any] | OwnNgrams | None) -> OwnNgrams | None:
        vendor = self._vendor_lexical
        if lexical is None or (isinstance(lexical, OwnNgrams) and vendor is not None):
            return lexical
        if isinstance(lexical, OwnNgrams):
            raise DataError("there are weights of n-grams for a head without a lexical view")
        if vendor is None or lexical.shape != vendor.shape:
            raise DataError(
                f"weights of n-grams of shape {lexical.shape} do not fit the head's lexical view: "
                f"{'it has none' if vendor is None else vendor.shape}"
            )
        weight = lexical.astype(np.float32)
        return None if np.array_equal(weight, vendor) else OwnNgrams.of(weight, vendor)

    @property
    def _vendor_lexical(self) -> Vectors | None:
        return None if self.head.lexical is None else self.head.lexical.weight

    @property
    def lexical(self) -> Vectors | None:
        """The weights v, (C, buckets), made anew by each access; None without a lexical view."""
        vendor = self._vendor_lexical
        return vendor if vendor is None or self.ngrams is None else self.ngrams.dense(vendor)

    @property
    def is_vendor(self) -> bool:
        """Whether it is the vendor's own model: omega = w, and the vendor's v and bias."""
        head = self.head
        vendors = head.weight, head.bias, self._vendor_lexical
        return same_arrays((self.weight, self.bias, self.lexical), vendors)

    def __eq__(self, other: object) -> bool:
        """Return whether the other one is the same model on the same head."""
        if not isinstance(other, PersonalModel):
            return NotImplemented
        return self.head == other.head and same_arrays(
            (self.weight, self.bias, self.lexical), (other.weight, other.bias, other.lexical)
        )

    def __repr__(self) -> str:
        kind = "the vendor's own" if self.is_vendor else "personal"
        return f"<PersonalModel: {kind}, on {self.head!r}>"

    def logits(self, inputs: Vectors, ngrams: SparseRows | None = None) -> Vectors:
        """Return Z of n examples, shape (n, C).

        Args:
            inputs: ``Head.inputs``, shape (n, D).
            ngrams: ``Head.ngrams``.

        Raises:
            DataError: If the head has a lexical view but there are no n-grams.
        """
        z = inputs @ self.weight.T + self.bias
        if (vendor := self._vendor_lexical) is None:
            return z
        if ngrams is None:
            raise DataError("this head has a lexical view: pass the examples' n-grams, Head.ngrams")
        buckets = ngrams.buckets
        weight = vendor[:, buckets] if self.ngrams is None else self.ngrams.at(vendor, buckets)
        return np.asarray(z + ngrams.times_entries(weight), dtype=np.float32)

    def probabilities(
        self, inputs: Vectors, ngrams: SparseRows | None = None
    ) -> NDArray[np.float64]:
        """Return probabilities of labels or tags, or values of a rating, (n, number of labels)."""
        return self.head.link.values(self.logits(inputs, ngrams))


def same_arrays(ours: Sequence[NDArray[Any] | None], theirs: Sequence[NDArray[Any] | None]) -> bool:
    """Return whether two sequences of arrays are equal, number by number; None equals only None."""
    return all(
        first is second if first is None or second is None else np.array_equal(first, second)
        for first, second in zip(ours, theirs, strict=True)
    )


def example_inputs(
    examples: Sequence[Example],
    embeddings: Mapping[str, Vectors],
    dimension: int,
    query: Vectors | None = None,
    *,
    candidate: bool = False,
) -> Vectors:
    """Return the inputs x of examples: h or u * v, (n, d), or [u * v, v], (n, 2 d)."""
    # A user without a history has u = 0, and so the same u * v for every candidate.
    result = np.zeros((len(examples), dimension * (1 + candidate)), dtype=np.float32)
    histories: dict[tuple[str, ...], Vectors] = {}
    for position, example in enumerate(examples):
        if not isinstance(example, Match):
            result[position] = embeddings[example]
        elif example.history:
            if example.history not in histories:
                rows = np.stack([embeddings[text] for text in example.history])
                user = rows.mean(axis=0) if query is None else softmax(rows @ query) @ rows
                histories[example.history] = user.astype(np.float32)
            product = histories[example.history] * embeddings[example.candidate]
            result[position, :dimension] = product
        if candidate and isinstance(example, Match):
            result[position, dimension:] = embeddings[example.candidate]
    return result


def _finite(array: NDArray[Any]) -> Vectors:
    if not np.issubdtype(array.dtype, np.floating):
        raise BundleFormatError(f"a head must consist of floats, not {array.dtype}")
    with np.errstate(over="ignore"):
        result: Vectors = array.astype(np.float32)
    if not np.isfinite(result).all():
        raise BundleFormatError("the head contains a number that is not finite in float32")
    return _read_only(result)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot change the numbers, because threads share models."""
    view = array.view()
    view.flags.writeable = False
    return view
