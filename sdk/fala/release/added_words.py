"""Words for a head that was trained on its own."""

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

    A backbone that was trained knows its training rows too well for words to be fitted beside it
    there. Words that were fitted beside the backbone before its training are sound, and so are
    three numbers on rows that neither has seen: z = a z_head + b v . words + c, each by logit. Few
    rows may turn words round (b below 0), and a device that knows texts by their words alone would
    turn its user's model round with them: then there are none. Of the trained head a tenth stays
    where they would turn that round (``LEAST_SLOPE``).

    Args:
        head: Without a lexical view. A matcher's gets weights of the candidate's own embedding,
            too, which are 0 until a user has their own.
        lexical: The view, for the head's labels in its order.
        examples: n examples that neither was fitted to.
        labels: n labels of the head's.
        embeddings: Embeddings of their texts by text.

    Returns:
        The head with the view as a bundle holds it.

    Raises:
        DataError: A label is not the head's, or there are no rows.
    """
    if not examples:
        raise DataError("words are weighed on rows that were not trained on, and there are none")
    logits = head.vendor_model().logits(head.inputs(examples, embeddings))
    spoken = Head(head.task, head.labels, head.weight, head.bias, head.query, lexical)
    words = spoken.words(examples)
    said = np.zeros_like(logits) if words is None else words.times(lexical.weight)
    features = np.stack([logits, said], axis=2).astype(np.float64)
    shares = head.label_shares(labels)
    theta, bias = _weighed(features, shares)
    turned = theta[:, 1] < 0
    if turned.any():
        features[:, turned, 1] = 0.0
        theta, bias = _weighed(features, shares)
    own = np.maximum(theta[:, :1], LEAST_SLOPE)
    of_words = np.where(turned, 0.0, theta[:, 1])[:, None]
    weight = own * head.weight
    if head.task == MATCHING:
        weight = np.hstack([weight, np.zeros_like(weight)])
    return Head(
        head.task, head.labels, weight, own[:, 0] * head.bias + bias, head.query,
        rounded(Lexical(lexical.lexicon, (of_words * lexical.weight).astype(np.float32))),
        head.dimension,
    )  # fmt: skip


def _weighed(features: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """The scales of each logit, (C, 2), and the biases; a feature that is 0 has the scale 1."""
    found = fit_paper(Evidence.of(features, labels=shares), prior_mean=1.0, lambdas=[_CALIBRATION])
    return found.theta, found.bias
