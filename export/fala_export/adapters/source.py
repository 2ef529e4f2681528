"""The torch model of a bundle: a bundle has the graph alone, which cannot be trained."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from fala import Bundle, ExportError, Pair
from fala.release import ONNX, ORT, TOKENIZER, OnnxEncoder
from fala_export.backbone import load
from fala_export.models.encoder import Encoder
from fala_export.models.sentence_encoder import POOLINGS
from fala_export.parity import compare
from fala_export.parity_texts import parity_texts

_TEXTS = 32  # of which each is compared alone, and in a pair with the next


def open_base(path: Path) -> tuple[Bundle, OnnxEncoder]:
    """Open the bundle that a task is for, and load its backbone.

    Raises:
        BundleError: It cannot be trusted.
        ExportError: Its backbone is no transformer.
    """
    bundle = Bundle.open(path)
    if bundle.manifest.kind not in (ONNX, ORT):
        raise ExportError(
            f"{path}: a task is trained on a transformer, and this holds {bundle.manifest.kind}"
        )
    backbone = bundle.backbone()
    if not isinstance(backbone, OnnxEncoder):
        raise TypeError("a transformer's bundle gave another backbone")
    return bundle, backbone


def model_of(
    base: Bundle, backbone: OnnxEncoder, source: str, revision: str | None, min_cosine: float
) -> tuple[Encoder, float]:
    """Load the model that a bundle was exported from, and hold it against the bundle.

    Args:
        base: The bundle.
        backbone: Its backbone.
        source: The model's folder, or its name on the hub.
        revision: The hub's branch, tag or commit.
        min_cosine: Mean cosine of the two's embeddings below which they are not the same model.

    Returns:
        The model, which reads texts as the bundle does; and the mean cosine.

    Raises:
        ExportError: It cannot be loaded, or is another model.
    """
    from tokenizers import Tokenizer

    details = base.manifest.details
    pooling = details.get("pooling")
    named = pooling if pooling in POOLINGS and pooling != "attention" else None
    encoder = load(source, named, revision)
    if isinstance(details.get("normalized"), bool):
        encoder.module.normalize = details["normalized"]
    length = base.manifest.max_length
    if length is None:
        raise ExportError(f"{base.path}: does not say how many tokens of a text it reads")
    encoder = replace(encoder, tokenizer=base.read(TOKENIZER), pad_id=base.manifest.pad_id)
    tokens = Tokenizer.from_str(encoder.tokenizer.decode()).get_vocab(with_added_tokens=True)
    known = int(encoder.module.transformer.config.vocab_size)
    for what, own, wanted in (
        ("dimensions", encoder.module.dimension, backbone.dimension),
        ("tokens", known, max(tokens.values()) + 1),
    ):
        if own < wanted or (own > wanted and what == "dimensions"):
            raise ExportError(
                f"{source}: not the model that {base.path} was exported from: it has {own} {what}, "
                f"and the bundle {wanted}"
            )
    alone = parity_texts(None)[:_TEXTS]
    pairs = [Pair(a, b) for a, b in pairwise(alone)]
    texts = [*alone, *pairs]
    cosine = compare(backbone.encode(texts), encoder.encode(texts, encoder.length(length)))
    if cosine["mean_cosine"] < min_cosine:
        raise ExportError(
            f"{source}: not the model that {base.path} was exported from: the mean cosine of their "
            f"embeddings is {cosine['mean_cosine']:.4f}, and should be at least {min_cosine}"
        )
    return encoder, cosine["mean_cosine"]
