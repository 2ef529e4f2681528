"""Bounds on graphs and tokenizers, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphLimits:
    """Bounds on a model. Encoders of today keep far below them.

    Attributes:
        nodes: Operators, those of branches among them.
        depth: Branches within branches.
        constants: Constant tensors.
        arguments: Inputs, outputs and attributes of one operator.
        all_arguments: Those of all operators.
        dimensions: Of a constant.
        elements: Numbers in the largest tensor of one run of usual size (256 MB in float32).
        long_elements: The same for a text of as many tokens as the release reads.
        work: Multiplications a token (BERT-large: 3e8).
        small: Numbers of a tensor whose values are followed, such as a shape.
        followed: Numbers of all such tensors in one run.
    """

    nodes: int = 20_000
    depth: int = 3
    constants: int = 20_000
    arguments: int = 2_000
    all_arguments: int = 100_000
    dimensions: int = 8
    elements: int = 1 << 26
    long_elements: int = 1 << 28
    work: int = 1 << 30
    small: int = 1 << 12
    followed: int = 1 << 22


@dataclass(frozen=True)
class StateLimits:
    """Bounds on what a run feeds to a graph's optional inputs.

    Attributes:
        bottleneck: Columns of an adapter.
        prefix: Tokens of a prompt.
    """

    bottleneck: int = 256
    prefix: int = 512


@dataclass(frozen=True)
class TokenizerLimits:
    """Bounds on a tokenizer.

    Attributes:
        bytes: Of the file (a vocabulary of a million words: 60 MB).
        values: Of its JSON, by brackets and commas; each becomes an object of its own.
        parts: Normalizers, pre-tokenizers, processors and decoders, together.
        depth: Sequences within sequences.
        added: Tokens beside the vocabulary.
        token: Characters of one token; all prefixes of every suffix of a text are looked up.
        content: Characters of an added token.
        text: Characters of a setting, such as a prefix.
        growth: How many times longer replacements may make a text.
        pattern: Characters of a plain string that is split or replaced by.
        word: Characters of a word beyond which it is unknown; finding its parts is quadratic.
        template: Pieces around a text.
        segment: Bytes that one character may become by a charsmap.
        units: Of a charsmap's trie (SentencePiece's own: 46,080).
    """

    bytes: int = 1 << 27
    values: int = 1 << 23
    parts: int = 64
    depth: int = 6
    added: int = 20_000
    token: int = 256
    content: int = 1_024
    text: int = 64
    growth: int = 8
    pattern: int = 2_000
    word: int = 256
    template: int = 64
    segment: int = 256
    units: int = 1 << 18


GRAPH = GraphLimits()
STATE = StateLimits()
TOKENIZER = TokenizerLimits()
