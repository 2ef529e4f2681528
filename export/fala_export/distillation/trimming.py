"""Trimming: leave rarely used pieces out of a WordPiece vocabulary.

Words whose piece is gone are spelled with shorter pieces. WordPiece takes the longest piece that
fits, so a text that uses kept pieces only is cut as before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fala import ExportError


def trim_vocabulary(
    tokenizer: bytes, used: Iterable[Sequence[int]], size: int
) -> tuple[bytes, list[int]]:
    """Keep the most used pieces of a vocabulary.

    Special tokens and single characters stay, however rare, so that every word can still be
    spelled.

    Args:
        tokenizer: A WordPiece tokenizer as JSON.
        used: Piece ids of the texts that say what is used.
        size: Number of pieces to keep; a smaller vocabulary is left as it is.

    Returns:
        The smaller tokenizer, and the old ids of its pieces in their new order: the order is
        kept, the ids close up.

    Raises:
        ExportError: The vocabulary is not WordPiece, or its special tokens and characters alone
            are more than ``size``.
    """
    content = json.loads(tokenizer)
    kind = content["model"].get("type", "unknown")
    if kind != "WordPiece":
        raise ExportError(f"only a WordPiece vocabulary can be trimmed; this one is {kind}")
    vocabulary: dict[str, int] = content["model"]["vocab"]
    prefix: str = content["model"]["continuing_subword_prefix"]
    special = {token["content"]: token["id"] for token in content["added_tokens"]}
    unknown: str = content["model"]["unk_token"]
    pieces = {**special, **vocabulary}
    needed = {
        number
        for piece, number in pieces.items()
        if piece in special or piece == unknown or len(piece.removeprefix(prefix)) == 1
    }
    if len(needed) > size:
        raise ExportError(
            f"a vocabulary of {size} pieces is too small: special tokens and single characters "
            f"alone are {len(needed)}"
        )
    counts = Counter(number for text in used for number in text)
    by_need = sorted(
        pieces.values(), key=lambda number: (number not in needed, -counts[number], number)
    )
    kept = sorted(by_need[:size])
    new = {old: position for position, old in enumerate(kept)}
    content["model"]["vocab"] = {
        piece: new[number]
        for piece, number in sorted(vocabulary.items(), key=lambda item: item[1])
        if number in new
    }
    content["added_tokens"] = [
        {**token, "id": new[token["id"]]} for token in content["added_tokens"]
    ]
    content["post_processor"] = _renumbered(content["post_processor"], new.__getitem__)
    return json.dumps(content, ensure_ascii=False).encode(), kept


def _renumbered(processor: dict[str, Any] | None, new: Callable[[int], int]) -> object:
    """A post-processor names the special tokens that it adds by id, each kind in its own way."""
    if processor is None:
        return None
    if processor["type"] == "Sequence":
        return {**processor, "processors": [_renumbered(p, new) for p in processor["processors"]]}
    if processor["type"] == "TemplateProcessing":
        tokens = {
            name: {**token, "ids": [new(number) for number in token["ids"]]}
            for name, token in processor["special_tokens"].items()
        }
        return {**processor, "special_tokens": tokens}
    ends: dict[str, object] = {
        end: [processor[end][0], new(processor[end][1])]
        for end in ("sep", "cls")  # BertProcessing and RobertaProcessing
        if end in processor
    }
    return {**processor, **ends}
