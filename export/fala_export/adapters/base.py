"""The torch model of a bundle: a bundle has the graph alone, which cannot be trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from fala import Bundle, ExportError, Pair
from fala.release import ONNX, ORT, TOKENIZER, OnnxEncoder
from fala_export.adapters.settings import TaskRelease
from fala_export.backbone import load
from fala_export.models.encoder import Encoder
from fala_export.models.sentence_encoder import POOLINGS
from fala_export.parity import compare
from fala_export.parity_texts import parity_texts

_TEXTS = 32  # of which each is compared alone, and in a pair with the next


@dataclass(frozen=True)
class Base:
    """A backbone that tasks are trained for.

    Attributes:
        bundle: It as devices have it.
        graph: What runs it there.
        encoder: The torch model that it was exported from, which reads texts as the bundle does.
        max_length: Tokens of a text that both read.
        cosine: Mean cosine of the two's embeddings.
    """

    bundle: Bundle
    graph: OnnxEncoder
    encoder: Encoder
    max_length: int
    cosine: float


def open_base(settings: TaskRelease) -> Base:
    """Open the bundle that a task is for, load the model, and hold one against the other.

    Raises:
        BundleError: The bundle cannot be trusted.
        ExportError: Its backbone is no transformer; or the model cannot be loaded, or is another.
    """
    path = settings.base
    bundle = Bundle.open(path)
    manifest = bundle.manifest
    if manifest.kind not in (ONNX, ORT):
        raise ExportError(
            f"{path}: a task is trained on a transformer, and this holds {manifest.kind}"
        )
    graph = bundle.backbone()
    if not isinstance(graph, OnnxEncoder):
        raise TypeError("a transformer's bundle has another backbone")
    if manifest.max_length is None:
        raise ExportError(f"{path}: does not say how many tokens of a text it reads")
    pooling = manifest.details.get("pooling")
    named = pooling if pooling in POOLINGS and pooling != "attention" else None
    encoder = load(settings.model, named, settings.revision)
    if isinstance(manifest.details.get("normalized"), bool):
        encoder.module.normalize = manifest.details["normalized"]
    encoder = replace(encoder, tokenizer=bundle.read(TOKENIZER), pad_id=manifest.pad_id)
    another = f"{settings.model}: not the model that {path} was exported from"
    _check_sizes(encoder, graph, another)
    max_length = encoder.length(manifest.max_length)
    cosine = _cosine(encoder, graph, max_length)
    if cosine < settings.min_cosine:
        raise ExportError(
            f"{another}: the mean cosine of their embeddings is {cosine:.4f}, and should be at "
            f"least {settings.min_cosine}"
        )
    return Base(bundle, graph, encoder, max_length, cosine)


def _check_sizes(encoder: Encoder, graph: OnnxEncoder, another: str) -> None:
    from tokenizers import Tokenizer

    tokens = Tokenizer.from_str(encoder.tokenizer.decode()).get_vocab(with_added_tokens=True)
    has, needs = int(encoder.module.transformer.config.vocab_size), max(tokens.values()) + 1
    if has < needs:
        raise ExportError(f"{another}: it has {has} tokens, and the bundle {needs}")
    has, needs = encoder.module.dimension, graph.dimension
    if has != needs:
        raise ExportError(f"{another}: it has {has} dimensions, and the bundle {needs}")


def _cosine(encoder: Encoder, graph: OnnxEncoder, max_length: int) -> float:
    alone = parity_texts(None)[:_TEXTS]
    texts = [*alone, *(Pair(a, b) for a, b in pairwise(alone))]
    return compare(graph.encode(texts), encoder.encode(texts, max_length))["mean_cosine"]
