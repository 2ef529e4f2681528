"""Bounds on graphs and tokenizers, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphLimits:
    """Bounds on a model. Today's encoders are far below them.

    Attributes:
        nodes: Operators, including those of branches.
        depth: Nested branches.
        constants: Constant tensors.
        arguments: Inputs, outputs and attributes of one operator.
        all_arguments: Those of all operators.
        dimensions: Dimensions of a constant.
        elements: Numbers in the largest tensor of one run of usual size (256 MB in float32).
        long_elements: The same for a text of the release's maximum length.
        work: Multiplications a token (BERT-large: 3e8).
        small: Numbers of a tensor whose values are computed, such as a shape.
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
class AdapterLimits:
    """Bounds on a graph's optional inputs.

    Attributes:
        bottleneck: Columns of an adapter.
    """

    bottleneck: int = 256


@dataclass(frozen=True)
class TokenizerLimits:
    """Bounds on a tokenizer.

    Attributes:
        bytes: Bytes of the file (a vocabulary of a million words: 60 MB).
        values: Values in its JSON, by brackets and commas; each becomes an object.
        parts: Normalizers, pre-tokenizers, processors and decoders, together.
        depth: Nested sequences.
        added: Tokens outside the vocabulary.
        token: Characters of one token; all prefixes of every suffix of a text are looked up.
        content: Characters of an added token.
        text: Characters of a setting, such as a prefix.
        growth: The largest factor by which replacements lengthen a text.
        pattern: Characters of a plain string that splits or is replaced.
        word: Characters of a word; a longer one is unknown, as splitting takes quadratic time.
        template: Pieces around a text.
        segment: Bytes to which a charsmap may map one character.
        units: Units of a charsmap's trie (SentencePiece's own: 46,080).
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
ADAPTER = AdapterLimits()
TOKENIZER = TokenizerLimits()
