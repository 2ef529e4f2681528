"""Record a release's logits for a few texts, which devices compare before they install it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fala.backbones import Backbone
from fala.base.examples import MATCHING, Match
from fala.model.heads import Head

_TEXTS = ("A short text.", "", "I do not like this at all!", "Two words")
_DIGITS = 3


def expected_answers(backbone: Backbone, head: Head) -> dict[str, Any]:
    """Return the vendor's logits, for ``probes`` in the manifest's details.

    A device rejects the release if its logits differ by more than they may between processors.

    Args:
        backbone: The release's backbone, as on a device.
        head: The release's head.

    Returns:
        A dictionary with ``texts`` and ``logits``: C numbers for each text.
    """
    embeddings = dict(zip(_TEXTS, backbone.encode(_TEXTS), strict=True))
    matching = head.task == MATCHING
    examples = [Match((text,), text) if matching else text for text in _TEXTS]
    z = head.vendor_model().logits(head.inputs(examples, embeddings), head.ngrams(examples))
    return {"texts": list(_TEXTS), "logits": np.round(z, _DIGITS).astype(float).tolist()}
