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
        small: Numbers of a list that is read: in an attribute, or of a small constant.
        elements: Numbers of a tensor whose size constants state (64 MB in float32).
        factor: By what factor constants may make a computed size larger than lengths do.
        computed: Numbers that are computed from constants alone, while the model is loaded (ALBERT
            in four bits, whose layers decode the same weights: 1.4e8).
        copies: The same, for each number of the constants: two for weights that are decoded.
        work: Numbers of constants that all products read (BERT-large: 3e8).
        reads: The same, for each number of the constants, as layers may share theirs.
    """

    nodes: int = 20_000
    depth: int = 3
    constants: int = 20_000
    arguments: int = 2_000
    all_arguments: int = 100_000
    dimensions: int = 8
    small: int = 1 << 12
    elements: int = 1 << 24
    factor: int = 1 << 16
    computed: int = 1 << 28
    copies: int = 4
    work: int = 1 << 30
    reads: int = 8


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


@dataclass(frozen=True)
class WordPieceLimits:
    """Further bounds on the tokenizer of static embeddings.

    Attributes:
        bytes: Bytes of the settings (BERT's: 60,000).
        prompt: Characters of a prompt.
        added: Tokens that stand for themselves; each is looked for at every character.
        content: Characters of such a token.
        images: Characters that are replaced by others.
        image: Characters that replace one.
        ranges: Ranges of characters that are removed, spaces, or apart.
        words: Words of one call's texts whose tokens are kept in memory.
        characters: The same, of characters.
    """

    bytes: int = 1 << 21
    prompt: int = 4_096
    added: int = 500
    content: int = 64
    images: int = 20_000
    image: int = 8
    ranges: int = 4_096
    words: int = 1 << 14
    characters: int = 1 << 16


GRAPH = GraphLimits()
TOKENIZERS = TokenizerLimits()
WORDPIECE = WordPieceLimits()
