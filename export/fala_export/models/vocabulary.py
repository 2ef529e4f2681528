"""Trim a transformer's vocabulary to the tokens that some texts use.

A multilingual model has most of its weights in the table of its tokens, and an app's texts use few
of them.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from torch import nn

from fala_export.errors import ExportError

if TYPE_CHECKING:
    from fala_export.models.encoder import Encoder

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # spells characters that have no token
_TOGETHER = 4096  # texts that are tokenized together


def trim_encoder(encoder: Encoder, texts: Iterable[str]) -> Encoder:
    """Drop the tokens that some texts do not use from the tokenizer and the embedding matrix.

    Args:
        encoder: A loaded encoder; it stays as it is.
        texts: The texts; their embeddings do not change.

    Returns:
        The smaller encoder; ``changed`` has the number of its tokens.

    Raises:
        ExportError: See ``trim_vocabulary``.
    """
    reader, rest = Tokenizer.from_str(encoder.tokenizer.decode()), iter(texts)
    used = {encoder.pad_id}
    while some := list(islice(rest, _TOGETHER)):
        for encoding in reader.encode_batch(some):
            used.update(encoding.ids)
    return _with_tokens(encoder, *trim_vocabulary(encoder.tokenizer, used))


def trim_like(encoder: Encoder, tokenizer: bytes) -> Encoder:
    """Trim an encoder to the vocabulary of a bundle that was exported from it.

    Args:
        encoder: The whole encoder; it stays as it is.
        tokenizer: The bundle's tokenizer as JSON.

    Raises:
        ExportError: The encoder lacks one of the tokens.
    """
    whole, trimmed = (
        Tokenizer.from_str(each.decode()).get_vocab() for each in (encoder.tokenizer, tokenizer)
    )
    kept = [whole.get(token) for token in sorted(trimmed, key=trimmed.__getitem__)]
    old_ids = [number for number in kept if number is not None]
    if len(old_ids) < len(kept) or encoder.pad_id not in old_ids:
        raise ExportError(
            "the model lacks tokens of the bundle's trimmed vocabulary; name the model that the "
            "bundle was exported from"
        )
    return _with_tokens(encoder, tokenizer, old_ids)


def _with_tokens(encoder: Encoder, tokenizer: bytes, old_ids: list[int]) -> Encoder:
    """The encoder with some rows of its embedding matrix, in the order of their new ids."""
    module, pad_id = copy.deepcopy(encoder.module), old_ids.index(encoder.pad_id)
    config, table = module.transformer.config, module.transformer.get_input_embeddings()
    # In place, because some families have a class of their own for it, which scales its rows.
    table.weight = nn.Parameter(table.weight.detach()[old_ids])
    table.num_embeddings = config.vocab_size = len(old_ids)
    table.padding_idx = config.pad_token_id = pad_id
    module.transformer.set_input_embeddings(table)  # T5 has it in two places
    return replace(
        encoder, module=module.eval(), tokenizer=tokenizer, pad_id=pad_id, tokens=len(old_ids)
    )


def trim_vocabulary(tokenizer: bytes, used: Iterable[int]) -> tuple[bytes, list[int]]:
    """Keep the tokens that are used.

    Special tokens, single characters and bytes always stay, so that every word can still be
    spelled. A text of kept tokens is split as before: WordPiece takes the longest token that there
    is, and Unigram the likeliest sequence; its least likely token stays, because the penalty of an
    unknown character is relative to that token.

    Args:
        tokenizer: A WordPiece or Unigram tokenizer as JSON.
        used: Ids of the tokens to keep.

    Returns:
        The smaller tokenizer, and the old ids of its tokens, in the same order without gaps.

    Raises:
        ExportError: The tokenizer is of another kind.
    """
    content = json.loads(tokenizer)
    model = content["model"]
    kind: str = model.get("type", "unknown")
    special = {token["content"]: token["id"] for token in content["added_tokens"]}
    kept = {*used, *special.values()}
    if kind == "WordPiece":
        vocabulary: dict[str, int] = model["vocab"]
        prefix, unknown = model["continuing_subword_prefix"], vocabulary.get(model["unk_token"])
    elif kind == "Unigram":
        entries: list[tuple[str, float]] = model["vocab"]
        vocabulary = {piece: number for number, (piece, _) in enumerate(entries)}
        prefix, unknown = "", model["unk_id"]
        kept.add(min(range(len(entries)), key=lambda number: entries[number][1]))
    else:
        raise ExportError(
            f"only a WordPiece or Unigram vocabulary can be trimmed; this one is {kind}: export "
            "the model without --trim-vocabulary"
        )
    kept |= {
        number
        for piece, number in vocabulary.items()
        if number == unknown or len(piece.removeprefix(prefix)) == 1 or _BYTE.fullmatch(piece)
    }
    old_ids = sorted(kept)
    new_ids = {old: position for position, old in enumerate(old_ids)}
    if kind == "WordPiece":
        model["vocab"] = {
            piece: new_ids[number]
            for piece, number in sorted(vocabulary.items(), key=lambda item: item[1])
            if number in new_ids
        }
    else:
        model["vocab"] = [entry for number, entry in enumerate(entries) if number in new_ids]
        model["unk_id"] = None if unknown is None else new_ids[unknown]
    content["added_tokens"] = [
        {**token, "id": new_ids[token["id"]]} for token in content["added_tokens"]
    ]
    content["post_processor"] = _renumber(content["post_processor"], new_ids.__getitem__)
    return json.dumps(content, ensure_ascii=False).encode(), old_ids


def _renumber(processor: dict[str, Any] | None, new_id: Callable[[int], int]) -> object:
    """Renumber the special tokens of a post-processor; each kind stores their ids differently."""
    if processor is None:
        return None
    if processor["type"] == "Sequence":
        return {**processor, "processors": [_renumber(p, new_id) for p in processor["processors"]]}
    if processor["type"] == "TemplateProcessing":
        tokens = {
            name: {**token, "ids": [new_id(number) for number in token["ids"]]}
            for name, token in processor["special_tokens"].items()
        }
        return {**processor, "special_tokens": tokens}
    ends: dict[str, object] = {
        end: [processor[end][0], new_id(processor[end][1])]
        for end in ("sep", "cls")  # BertProcessing and RobertaProcessing
        if end in processor
    }
    return {**processor, **ends}
