"""Trim a transformer's vocabulary to the tokens that some texts use.

A multilingual model has most of its weights in the table of its tokens, and an app's texts use few
of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedModel

from fala_export.base.errors import ExportError

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # Tokens that spell characters without a token of their own.
_TOGETHER = 4096  # Number of texts that are tokenized together.


def used_tokens(tokenizer: bytes, texts: Iterable[str]) -> set[int]:
    """Return the ids of the tokens that occur in the texts."""
    reader, rest, used = Tokenizer.from_str(tokenizer.decode()), iter(texts), set[int]()
    while some := list(islice(rest, _TOGETHER)):
        for encoding in reader.encode_batch(some):
            used.update(encoding.ids)
    return used


def same_tokens(whole: bytes, trimmed: bytes, pad_id: int) -> list[int]:
    """Return the whole tokenizer's ids of a trimmed tokenizer's tokens, in their new order.

    Args:
        whole: The model's tokenizer as JSON.
        trimmed: The bundle's tokenizer as JSON.
        pad_id: The padding token's id in the whole tokenizer.

    Raises:
        ExportError: The whole tokenizer lacks a token, or the trimmed one lacks the padding token.
    """
    old, new = (Tokenizer.from_str(each.decode()).get_vocab() for each in (whole, trimmed))
    old_ids = [old.get(token) for token in sorted(new, key=new.__getitem__)]
    kept = [number for number in old_ids if number is not None]
    if len(kept) < len(old_ids) or pad_id not in kept:
        raise ExportError(
            "the model lacks tokens of the bundle's trimmed vocabulary; name the model that the "
            "bundle was exported from"
        )
    return kept


def keep_tokens(transformer: PreTrainedModel, old_ids: list[int], pad_id: int) -> None:
    """Keep some rows of the embedding matrix.

    Args:
        transformer: The model; changed in place.
        old_ids: The rows' ids, in their new order.
        pad_id: The padding token's new id.
    """
    config, table = transformer.config, transformer.get_input_embeddings()
    # The matrix is changed in place, because some families have a class of their own for it, which
    # scales its rows.
    table.weight = nn.Parameter(table.weight.detach()[old_ids])
    table.num_embeddings = config.vocab_size = len(old_ids)
    table.padding_idx = config.pad_token_id = pad_id
    transformer.set_input_embeddings(table)  # T5 has the matrix in two places.


def trim_vocabulary(tokenizer: bytes, used: Iterable[int]) -> tuple[bytes, list[int]]:
    """Keep only the tokens that are used.

    Special tokens, single characters and bytes always stay, so that every word can still be
    spelled. A text of kept tokens is split as before: WordPiece uses the longest token that exists,
    and Unigram the likeliest sequence. Unigram's least likely token stays, because the penalty of
    an unknown character is relative to that token.

    Args:
        tokenizer: A WordPiece or Unigram tokenizer as JSON.
        used: The ids of the tokens to keep.

    Returns:
        The smaller tokenizer, and the old ids of its tokens, in the same order without gaps.

    Raises:
        ExportError: The tokenizer is neither WordPiece nor Unigram.
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
            f"unsupported tokenizer model {kind!r}; --trim-vocabulary supports WordPiece and "
            "Unigram"
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
        for end in ("sep", "cls")  # These are the tokens of BertProcessing and RobertaProcessing.
        if end in processor
    }
    return {**processor, **ends}
