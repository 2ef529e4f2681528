"""A release's logits of a few texts, which devices compare before they install it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fala.backbones import Backbone
from fala.examples import MATCHING, Match
from fala.model.heads import Head

_TEXTS = ("A short text.", "", "I do not like this at all!", "Two words")
_DIGITS = 3


def expected_answers(backbone: Backbone, head: Head) -> dict[str, Any]:
    """The logits that a release's vendor measures, as its manifest's details keep under ``probes``.

    A device that gets others, by more than processors differ, refuses the release.

    Args:
        backbone: The release's backbone, as a device will run it.
        head: Its head.

    Returns:
        ``texts``, and ``logits``: of each text C numbers.
    """
    embeddings = dict(zip(_TEXTS, backbone.encode(_TEXTS), strict=True))
    matching = head.task == MATCHING
    examples = [Match((text,), text) if matching else text for text in _TEXTS]
    z = head.vendor_model().logits(head.inputs(examples, embeddings), head.words(examples))
    return {"texts": list(_TEXTS), "logits": np.round(z, _DIGITS).astype(float).tolist()}
