"""The logits of examples, by a personal model on the embeddings of its backbone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fala.backbones.onnx_encoder import Encode
from fala.base.errors import BundleFormatError
from fala.base.examples import MATCHING, Example, Match, unique_texts
from fala.model.heads import PersonalModel, Vectors


def logits(model: PersonalModel, encode: Encode, examples: Sequence[Example]) -> Vectors:
    """Return the logits of n examples, shape (n, C).

    Raises:
        BundleFormatError: A logit is not finite: the release's numbers are too large.
    """
    z = _logits(model, encode, examples)
    if not np.isfinite(z).all():
        raise BundleFormatError("the release's logits are not finite")
    return z


def probe(model: PersonalModel, encode: Encode, texts: Sequence[str]) -> Vectors:
    """Return the logits of some texts, (n, C), finite or not.

    For a matcher each text is a candidate, and its own history.
    """
    if model.head.task == MATCHING:
        return _logits(model, encode, [Match((text,), text) for text in texts])
    return _logits(model, encode, list(texts))


def _logits(model: PersonalModel, encode: Encode, examples: Sequence[Example]) -> Vectors:
    texts, head = unique_texts(examples), model.head
    embeddings = dict(zip(texts, encode(texts), strict=True))
    with np.errstate(over="ignore", invalid="ignore"):  # overflow becomes infinite
        z = model.logits(head.inputs(examples, embeddings), head.ngrams(examples))
    return np.asarray(z, dtype=np.float32)
