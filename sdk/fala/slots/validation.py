"""Validation of a release, which must load and give finite logits for edge-case texts.

A release that this process has not validated yet is first loaded in a separate process.
Installation and trial run it on the texts of this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from fala.audit.tokenizer import unknown_patterns
from fala.backbones import Backbone, OnnxEncoder
from fala.backbones.external import Encoders
from fala.backbones.onnx_encoder import RUN_TOKENS, Encode
from fala.base.errors import BundleFormatError, BundleMismatchError, counted
from fala.base.examples import Example
from fala.bundle.format import ONNX, TOKENIZER, VECTOR_TABLES
from fala.bundle.reading import Bundle, named_errors
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.logits import probe
from fala.slots.child import validate_in_child
from fala.slots.release import backbone_of
from fala.slots.slot import Slot

_EMOJI = "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3fd\U0001f1e9\U0001f1ea"
#: Texts that users do write: empty; blanks; a NUL; control characters; right to left, with a mark
#: that turns the direction; scripts without spaces; a family of emoji, flags; marks without
#: letters; a character that becomes eighteen; noncharacters; tokens of tokenizers; a long word, and
#: a long text.
EDGE_CASES = (
    "", " ", "\t\n\u00a0\u3000 ", "\0", "a\0b", "\x01\x1b[2J\x7f\x85",
    "\u0645\u0631\u062d\u0628\u0627 \u202e\u05e9\u05dc\u05d5\u05dd",
    "\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002\u65e5\u672c\u8a9e",
    _EMOJI,
    "\u0301\u0301\u0323", "\ufdfa\ufb03", "\ufffd\ufffe", "[CLS] [SEP] [MASK] <s> </s> <pad> <unk>",
    "A text.", "x" * 5_000, "A long text. " * 1_000,
)  # fmt: skip
#: A regular expression of no known family reads runs of these, and of the letters and words in the
#: expression itself, because it takes longest on such texts.
RUNS = (*" a'1A!", "\r\n", "\n ", "( ", "a1", "aA ", "\u00e9\u0301", "\u01c5", "\u4e00")
#: Length of such a run in characters: for those above, and for those in the expression, which are
#: many.
LONG_RUN, SHORT_RUN = 1 << 15, 2_000

#: Every length of a text up to this one, in tokens, is run; then some lengths up to the longest.
EVERY_LENGTH = 32
# Lengths at which as many texts as fit in one run of the device are also run together.
_TOGETHER = (1, 3, 24)
# Lengths up to which texts of only the first and only the last token are also run.
_FEW = 3

#: The edge cases that are probes at every first use of a release on trial.
FEW_EDGE_CASES = ("", _EMOJI)
#: Number of the device's newest texts that a new release is run on before it is installed.
PROBES = 4
#: Number of the app's first examples that a release on trial is run on first.
FIRST_EXAMPLES = 4

#: Logits on another kind of processor differ by less than this, because int8 products are summed
#: differently. A release may have its own tolerance.
PROBE_TOLERANCE = 0.5
#: Limits of the vendor's texts whose logits a release contains: their number, and their characters.
MOST_PROBES, LONGEST_PROBE = 16, 1_000

#: The releases that were validated in this process: for the digest of each, whether the release has
#: something that only a signed one may have.
VALIDATED: dict[str, bool] = {}


def validate(
    bundle: Bundle,
    encoders: Encoders | None = None,
    *,
    signed: bool = False,
    known: bool = False,
) -> Backbone:
    """Load a release's backbone, and check that it loads and predicts.

    A release that is not validated yet is audited. It is then loaded in a separate process, and run
    there on edge cases, up to the longest text. If no process can be started, this happens here,
    with a line in the log. A table of vectors, which no other library reads, is loaded here. An
    external release has no model, so the app's encoder embeds its probes.

    Args:
        bundle: The release, opened to be held.
        encoders: The app's own encoders; None if it has none.
        signed: Whether the device has verified the release's signature. A signed release may
            contain more than an unsigned one; see ``Bundle.audit``.
        known: Whether another process validated the release for such a device.

    Returns:
        The loaded backbone.

    Raises:
        MissingExtraError: If a library that the release needs is missing, or cannot be loaded.
        BundleError: If the release does not load, does not predict, or takes more time or memory
            than its size explains.
        EncoderError: If the app's encoder is a different one, or failed.
    """
    digest, ran = bundle.digest, False
    if bundle.external:
        backbone = backbone_of(bundle, encoders)
        VALIDATED[digest] = False
        return backbone
    if known or VALIDATED.get(digest) in (False, signed):
        return backbone_of(bundle)
    if bundle.manifest.kind not in VECTOR_TABLES:
        bundle.audit(signed=signed)  # the audit comes first because it costs least
        ran = validate_in_child(bundle)
    backbone = backbone_of(bundle)
    if not ran:
        check_edge_cases(bundle, backbone)
    VALIDATED[digest] = signed and needs_signature(bundle)
    return backbone


def needs_signature(bundle: Bundle) -> bool:
    """Return whether an audited release has something that only a signed one may have."""
    return bundle.manifest.kind == ONNX and bool(unknown_patterns(bundle.read(TOKENIZER)))


def check_edge_cases(
    bundle: Bundle, backbone: Backbone, step: Callable[[str], None] = lambda _: None
) -> None:
    """Run a release on edge cases, and on the texts whose logits its vendor measured.

    Args:
        bundle: The release.
        backbone: The release's loaded backbone.
        step: A function that is called with the name of each step before it.

    Raises:
        BundleMismatchError: If the bundle has no head.
        BundleFormatError: If the release fails, or its logits are not finite or differ from those
            that the vendor measured.
    """
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(f"{bundle.path}: this is a backbone without a head")
    edge_cases = "edge cases, such as an empty text"
    if isinstance(backbone, OnnxEncoder):
        with named_errors(bundle.path):
            _try_tokenizer(backbone, bundle.read(TOKENIZER), step)
            _try_model(backbone, bundle.manifest.max_length or EVERY_LENGTH, step)
    step("it read edge cases")
    vendor, encode = head.vendor_model(), backbone.encode
    _checked_logits(vendor, encode, bundle, EDGE_CASES, edge_cases)
    # These are also run alone, because padding in a batch may hide that a text has no tokens.
    for text in EDGE_CASES[:3]:
        _checked_logits(vendor, encode, bundle, [text], edge_cases)
    texts, expected, tolerance = vendor_probes(bundle, head)
    if texts:
        z = _checked_logits(vendor, encode, bundle, texts, edge_cases)
        largest = float(np.abs(z - expected).max())
        if largest > tolerance:
            raise BundleFormatError(
                f"{bundle.path}: on this machine its logits differ by {largest:.3g} from those "
                f"that the vendor measured; at most {tolerance:g} is expected"
            )


def _try_tokenizer(encoder: OnnxEncoder, tokenizer: bytes, step: Callable[[str], None]) -> None:
    """Let regular expressions of no known family read long runs of characters.

    Args:
        encoder: The transformer.
        tokenizer: The JSON of its tokenizer.
        step: A function that is called with the name of each step before it.

    Raises:
        BundleFormatError: If the tokenizer fails.
    """
    for expression in unknown_patterns(tokenizer):
        step("the tokenizer's regular expression read long runs of characters")
        pairs = map("".join, pairwise(expression))
        units = {*expression, *pairs, *re.findall(r"\w+", expression)}
        encoder.tokenize([
            f"{unit * (length // len(unit))}{end}"
            for length, some in ((SHORT_RUN, sorted(units)), (LONG_RUN, RUNS))
            for unit in some
            # A search fails immediately in a text without a letter that every match has.
            for end in ("x", f"\0{expression}")
        ])  # fmt: skip


def _try_model(encoder: OnnxEncoder, longest: int, step: Callable[[str], None]) -> None:
    """Run a model on texts of every size.

    Args:
        encoder: The transformer.
        longest: The number of tokens of its longest text.
        step: A function that is called with the name of each step before it.

    Raises:
        BundleFormatError: If the model fails.
    """
    ids = encoder.vocabulary or [0]
    mixed: list[int] = []
    for length in lengths_up_to(longest):
        step(f"it read texts of {counted(length, 'token')}")
        # The text goes from the first token of the vocabulary to the last, as far as there is room.
        mixed = [ids[position * (len(ids) - 1) // max(length - 1, 1)] for position in range(length)]
        few = [[ids[0]] * length, [ids[-1]] * length] if length <= _FEW else []
        for row in (mixed, *few):
            encoder.try_ids([row])
        if length in _TOGETHER:
            encoder.try_ids([mixed] * (RUN_TOKENS // length))
    if encoder.optional_inputs:
        step("it read the longest text with the largest adapter")
        encoder.try_ids([mixed], optional=True)


def lengths_up_to(longest: int) -> list[int]:
    """Return the lengths to try: all short ones, then ever fewer, and the longest."""
    lengths = [*range(1, min(EVERY_LENGTH, longest) + 1)]
    while lengths[-1] < longest:
        lengths.append(min(lengths[-1] * 4 // 3, longest))
    return lengths


def check_own_texts(
    model: PersonalModel, encode: Encode, bundle: Bundle, texts: Sequence[str]
) -> int:
    """Run a new release on texts, through every part that will be used.

    Args:
        model: The release's model.
        encode: The ``encode`` of the release's backbone.
        bundle: The release, which errors name.
        texts: The texts; if empty, a few edge cases are used.

    Returns:
        The number of texts.

    Raises:
        BundleFormatError: If the release fails, or its logits are not finite.
    """
    texts = texts or FEW_EDGE_CASES
    return len(_checked_logits(model, encode, bundle, texts, "the device's own texts"))


def check_trial(slot: Slot, examples: Sequence[Example], texts: Sequence[str]) -> None:
    """Run a slot on trial on edge cases, the device's texts, and the app's first examples.

    Args:
        slot: The slot.
        examples: The examples of the app's call.
        texts: Edge cases and texts of the device.

    Raises:
        BundleError: If the slot fails, or its logits are not finite.
    """
    if texts and not np.isfinite(slot.probe(texts)).all():
        raise BundleFormatError("its logits are not finite")
    if examples:
        slot.logits(examples[:FIRST_EXAMPLES])


def vendor_probes(bundle: Bundle, head: Head) -> tuple[list[str], Vectors, float]:
    """Return the texts whose logits a release's vendor measured, the logits, and a tolerance.

    The manifest's details contain them under ``probes``: ``texts``, ``logits`` (a list of C numbers
    per text), and ``tolerance`` if it differs from the usual one.

    Raises:
        BundleFormatError: If the probes do not have this form.
    """
    probes = bundle.manifest.details.get("probes")
    usual = PROBE_TOLERANCE * head.link.spread
    if probes is None:
        return [], np.zeros((0, len(head.bias)), np.float32), usual
    try:
        texts, tolerance = probes["texts"], probes.get("tolerance", usual)
        logits = np.array(probes["logits"], dtype=np.float32)
        valid = (
            isinstance(texts, list) and 0 < len(texts) <= MOST_PROBES
            and all(isinstance(text, str) and len(text) <= LONGEST_PROBE for text in texts)
            and logits.shape == (len(texts), len(head.bias)) and np.isfinite(logits).all()
            and isinstance(tolerance, int | float) and math.isfinite(tolerance)
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, OverflowError):
        valid = False
    if not valid:
        raise BundleFormatError(
            f"{bundle.path}: the manifest's probes are not texts with one logit per class"
        )
    return texts, logits, float(tolerance)


def _checked_logits(
    model: PersonalModel, encode: Encode, bundle: Bundle, texts: Sequence[str], kind: str
) -> Vectors:
    z = probe(model, encode, texts)
    if not np.isfinite(z).all():
        raise BundleFormatError(
            f"{bundle.path}: its logits are not finite on {kind}; nothing was installed"
        )
    return z
