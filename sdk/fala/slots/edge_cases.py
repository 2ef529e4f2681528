"""Texts that no vendor thinks of and every user writes, and what a release says of them."""

from __future__ import annotations

import math

import numpy as np

from fala.backbones import Backbone, LazyBackbone
from fala.bundle.reading import Bundle
from fala.errors import BundleFormatError
from fala.model.active import ActiveModel
from fala.model.heads import Head, Vectors

#: Empty; blanks; a NUL; control characters; right to left, and a mark that turns the direction;
#: scripts without spaces; a family of emoji, flags; marks without letters; a character that is
#: eighteen; what is no character; tokenizers' own signs; a long word, and a long text.
ODD = (
    "", " ", "\t\n\u00a0\u3000 ", "\0", "a\0b", "\x01\x1b[2J\x7f\x85",
    "\u0645\u0631\u062d\u0628\u0627 \u202e\u05e9\u05dc\u05d5\u05dd",
    "\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002\u65e5\u672c\u8a9e",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3fd\U0001f1e9\U0001f1ea",
    "\u0301\u0301\u0323", "\ufdfa\ufb03", "\ufffd\ufffe", "[CLS] [SEP] [MASK] <s> </s> <pad> <unk>",
    "A text.", "x" * 5_000, "A long text. " * 1_000,
)  # fmt: skip

#: Logits of a release on another kind of processor differ by less: int8 products are summed
#: otherwise. A release may tell its own tolerance.
TOLERANCE = 0.5


def answer_odd(bundle: Bundle, head: Head, backbone: Backbone) -> int:
    """Let a release answer odd texts, and those whose logits its vendor tells.

    Args:
        bundle: The release.
        head: Its head.
        backbone: Its backbone, loaded.

    Returns:
        How many texts it answered.

    Raises:
        BundleFormatError: It cannot, or not with finite numbers, or not as the vendor says.
    """
    lazy = LazyBackbone(lambda: backbone, transformer=backbone.is_transformer)
    answering = ActiveModel(head.vendor_model(), lazy)
    _check(bundle, head, answering.probe(ODD), len(ODD))
    # Alone too: what several texts share may hide that one of them has nothing.
    for text in ODD[:3]:
        _check(bundle, head, answering.probe([text]), 1)
    texts, logits, tolerance = expected(bundle, head)
    if texts:
        z = answering.probe(texts)
        _check(bundle, head, z, len(texts))
        furthest = float(np.abs(z - logits).max())
        if furthest > tolerance:
            raise BundleFormatError(
                f"{bundle.path}: on this machine its logits differ by {furthest:.3g} from those "
                f"that the vendor measured; up to {tolerance:g} is expected"
            )
    return len(ODD) + len(texts)


def expected(bundle: Bundle, head: Head) -> tuple[list[str], Vectors, float]:
    """The texts whose logits a release's vendor tells, with these and a tolerance.

    They stand in the manifest's details under ``probes``: ``texts``, ``logits`` (a list of C
    numbers for each), and ``tolerance`` where it is not ``TOLERANCE``.

    Raises:
        BundleFormatError: They are not of this form.
    """
    told = bundle.manifest.details.get("probes")
    if told is None:
        return [], np.zeros((0, len(head.bias)), np.float32), TOLERANCE
    texts = told.get("texts") if isinstance(told, dict) else None
    tolerance = told.get("tolerance", TOLERANCE) if isinstance(told, dict) else None
    try:
        logits = np.array(told["logits"], dtype=np.float32)
        fine = (
            isinstance(texts, list) and 0 < len(texts) <= _MOST_TOLD
            and all(isinstance(text, str) and len(text) <= _LONGEST_TOLD for text in texts)
            and logits.shape == (len(texts), len(head.bias)) and np.isfinite(logits).all()
            and isinstance(tolerance, int | float) and math.isfinite(tolerance)
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, OverflowError):
        fine = False
    if not fine or texts is None or tolerance is None:
        raise BundleFormatError(
            f"{bundle.path}: the manifest's probes are not texts with a logit for each class"
        )
    return texts, logits, float(tolerance)


_MOST_TOLD, _LONGEST_TOLD = 16, 1_000


def _check(bundle: Bundle, head: Head, z: Vectors, count: int) -> None:
    if z.shape != (count, len(head.bias)):
        raise BundleFormatError(
            f"{bundle.path}: {count} texts have logits of shape {z.shape}; nothing was installed"
        )
    if not np.isfinite(z).all():
        raise BundleFormatError(
            f"{bundle.path}: its logits are not finite on odd texts, such as an empty one; nothing "
            "was installed"
        )
