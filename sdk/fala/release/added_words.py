"""Words for a head that was trained without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fala.bundle.lexical import rounded
from fala.errors import DataError
from fala.examples import MATCHING, Example
from fala.model.heads import Head, Vectors
from fala.model.lexical import Lexical
from fala.model.losses import Floats
from fala.release.paper.fit import Evidence, fit_paper
from fala.release.public_logits import with_public
from fala.solver.gaussian import LEAST_SLOPE

_CALIBRATION = 1e-6  # the pull of both scales to 1: it decides nothing, unless all rows are alike


def add_words(
    head: Head,
    lexical: Lexical,
    examples: Sequence[Example],
    labels: Sequence[str | int],
    embeddings: Mapping[str, Vectors],
) -> Head:
    """Give a head a lexical view that was fitted beside another head.

    A trained backbone fits its training rows too well for words to be fitted beside it there. So
    the words are fitted beside the backbone before its training. Three numbers for each logit join
    them to the head, z = a z_head + b v . words + c, fitted on rows that neither was fitted to.
    Few rows may make b negative. A device that estimates texts by their words alone would then
    reverse its user's model: b becomes 0. Likewise a is at least a tenth (``LEAST_SLOPE``).

    Args:
        head: Without a lexical view. A matcher's also gets weights of the candidate's embedding,
            which are 0 until a user's labels move them.
        lexical: The view, for the head's labels in its order.
        examples: n examples that neither was fitted to.
        labels: n labels of the head's.
        embeddings: Embeddings of their texts by text.

    Returns:
        The head with the view as a bundle holds it.

    Raises:
        DataError: A label is not the head's, there are no rows, or the head is of tags or ratings.
    """
    head.check_exclusive("add_words")
    if not examples:
        raise DataError("words are weighed on rows that were not trained on, and there are none")
    logits = head.vendor_model().logits(head.inputs(examples, embeddings))
    lexical_head = Head(head.task, head.labels, head.weight, head.bias, head.query, lexical)
    words = lexical_head.words(examples)
    word_logits = np.zeros_like(logits) if words is None else words.times(lexical.weight)
    features = np.stack([logits, word_logits], axis=2).astype(np.float64)
    shares = head.label_shares(labels)
    theta, bias = _weighed(features, shares)
    negative = theta[:, 1] < 0
    if negative.any():
        features[:, negative, 1] = 0.0
        theta, bias = _weighed(features, shares)
    of_head = np.maximum(theta[:, :1], LEAST_SLOPE)
    of_words = np.where(negative, 0.0, theta[:, 1])[:, None]
    weight = of_head * head.weight
    if head.task == MATCHING:
        weight = np.hstack([weight, np.zeros_like(weight)])
    joined = (features * np.hstack([of_head, of_words])).sum(axis=2) + bias
    return Head(
        head.task, head.labels, weight, of_head[:, 0] * head.bias + bias, head.query,
        rounded(Lexical(lexical.lexicon, (of_words * lexical.weight).astype(np.float32))),
        head.dimension, with_public(head.link, joined),
    )  # fmt: skip


def _weighed(features: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """The scales of each logit, (C, 2), and the biases; a feature that is 0 has the scale 1."""
    fit = fit_paper(Evidence.of(features, labels=shares), prior_mean=1.0, lambdas=[_CALIBRATION])
    return fit.theta, fit.bias
