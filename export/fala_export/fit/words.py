"""Fit n-grams: frequencies in public texts, and weights for a head trained without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fala.base.errors import DataError
from fala.base.examples import MATCHING, Example
from fala.bundle.writing import rounded
from fala.model.heads import Head, Lexical, Vectors
from fala.model.labels import Label
from fala.solver.gaussian import LEAST_SLOPE
from fala.text.ngrams import BUCKETS, ngrams
from fala_export.fit.calibration import scales_and_biases

#: Frequencies are rounded to this many steps, so that a bundle stores each in a byte.
STEPS = 255

# A step is a multiple of this number, so that a code times a step is exact in float32.
_GRAIN = 2.0**-18
_BLOCK = 10_000  # Number of texts whose n-grams are held in memory at a time.


def fit_idf(texts: Sequence[str]) -> Vectors:
    """Return the inverse document frequencies of N public texts: idf = ln((1 + N) / (1 + df)) + 1.

    The added 1s stand for a further text with every n-gram. An n-gram in no text has the largest
    idf.

    Args:
        texts: Public texts; duplicates count once.
    """
    distinct = list(dict.fromkeys(texts))
    frequency = np.zeros(BUCKETS, dtype=np.int64)
    for start in range(0, len(distinct), _BLOCK):
        frequency += np.bincount(ngrams(distinct[start : start + _BLOCK])[1], minlength=BUCKETS)
    idf = np.log((1 + len(distinct)) / (1 + frequency)) + 1
    step = np.ceil(idf.max() / STEPS / _GRAIN) * _GRAIN
    return np.asarray(np.rint(idf / step) * step, dtype=np.float32)


def add_words(
    head: Head,
    lexical: Lexical,
    examples: Sequence[Example],
    labels: Sequence[Label],
    embeddings: Mapping[str, Vectors],
) -> Head:
    """Add a lexical view, which was fitted without the head, to a classifier's head.

    A trained backbone overfits its training rows, so n-grams cannot be fitted to these rows
    together with it, and are fitted alone. Three numbers for each logit combine them with the head,
    z = a z_head + b v . words + c. They are fitted on rows of neither fit. With few rows, b may be
    negative. A device that estimates texts by their n-grams alone would then reverse its user's
    model, so b becomes 0. For the same reason, a is at least a tenth (``LEAST_SLOPE``).

    Args:
        head: A classifier's head without a lexical view.
        lexical: The view, for the head's labels in its order.
        examples: n examples that neither fit has used.
        labels: The n labels of the examples.
        embeddings: The embeddings of their texts, by text.

    Returns:
        The head with the view, rounded as in a bundle.

    Raises:
        DataError: A label is not one of the head's, there are no rows, or the head is not a
            classifier's.
    """
    head.check_exclusive("add_words")
    if head.task == MATCHING:
        raise DataError("add_words is for a classifier; fit a matcher's head again with fit_head")
    if not examples:
        raise DataError("lexical features need rows that were not trained on, but there are none")
    logits = head.vendor_model().logits(head.inputs(examples, embeddings))
    lexical_head = Head(head.task, head.labels, head.weight, head.bias, head.query, lexical)
    words = lexical_head.ngrams(examples)
    word_logits = np.zeros_like(logits) if words is None else words.times(lexical.weight)
    features = np.stack([logits, word_logits], axis=2).astype(np.float64)
    shares = head.label_shares(labels)
    theta, bias = scales_and_biases(features, shares)
    negative = theta[:, 1] < 0
    if negative.any():
        features[:, negative, 1] = 0.0
        theta, bias = scales_and_biases(features, shares)
    head_scales = np.maximum(theta[:, :1], LEAST_SLOPE)
    word_scales = np.where(negative, 0.0, theta[:, 1])[:, None]
    weight = (word_scales * lexical.weight).astype(np.float32)
    return Head(
        head.task,
        head.labels,
        head_scales * head.weight,
        head_scales[:, 0] * head.bias + bias,
        lexical=rounded(Lexical(lexical.idf, weight)),
        link=head.link,
    )
