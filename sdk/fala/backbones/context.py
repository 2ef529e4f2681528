"""The tokens of a hard prompt: a writer's own texts, one after another, before a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Context:
    """The tokens of a hard prompt.

    Attributes:
        ids: ``[CLS] first text [SEP] second text [SEP] ...``, in the tokenizer's own marks.
        texts: Positions of the texts that they are of, among those that were given.
    """

    ids: tuple[int, ...]
    texts: tuple[int, ...]


def context_of(tokenizer: Any, texts: Sequence[str], length: int) -> Context:  # noqa: ANN401
    """Put texts one after another, as ``fala-export prompts --kind hard-static`` trains.

    Args:
        tokenizer: Of the ``tokenizers`` library.
        texts: The texts, the first first; one without tokens is passed over.
        length: Tokens that there may be, with the marks; the last text that has room is cut.
    """
    ids: list[int] = []
    used = []
    for place, text in enumerate(texts):
        framed = tokenizer.encode(text)
        own = [at for at, mark in enumerate(framed.special_tokens_mask) if not mark]
        if not own:
            continue
        before, end = framed.ids[: own[0]], framed.ids[own[-1] + 1 :]
        room = length - len(ids or before) - len(end)
        if room < 1:
            break
        ids = (ids or before) + tokenizer.encode(text, add_special_tokens=False).ids[:room] + end
        used.append(place)
    return Context(tuple(ids), tuple(used))
