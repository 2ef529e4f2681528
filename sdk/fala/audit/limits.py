"""Bounds on graphs and tokenizers, by name."""

from __future__ import annotations

# A graph. Today's encoders are far below these bounds.
NODES = 20_000  # operators, including those of branches
BRANCHES = 3  # nested branches
CONSTANTS = 20_000
ARGUMENTS = 2_000  # inputs, outputs and attributes of one operator
ALL_ARGUMENTS = 100_000  # those of all operators
DIMENSIONS = 8  # of a constant
SMALL = 1 << 12  # numbers of a list that is read: in an attribute, or of a small constant
ELEMENTS = 1 << 24  # numbers of a tensor whose size constants state (64 MB in float32)
FACTOR = 1 << 16  # by which constants may make a computed size larger than lengths do
#: Numbers that are computed from constants alone, while the model is loaded (ALBERT in four bits,
#: whose layers decode the same weights: 1.4e8); and the same, for each number of the constants: two
#: for weights that are decoded.
COMPUTED, COPIES = 1 << 28, 4
#: Numbers of constants that all products read (BERT-large: 3e8); and the same, for each number of
#: the constants, as layers may share theirs.
WORK, READS = 1 << 30, 8

# A tokenizer.
TOKENIZER_BYTES = 1 << 27  # of the file (a vocabulary of a million words: 60 MB)
VALUES = 1 << 23  # in its JSON, by brackets and commas; each becomes an object
PARTS = 64  # normalizers, pre-tokenizers, processors and decoders, together
SEQUENCES = 6  # nested sequences
ADDED = 20_000  # tokens outside the vocabulary
CONTENT = 1_024  # characters of such a token
TOKEN = 256  # characters; all prefixes of every suffix of a text are looked up
TEXT = 64  # characters of a setting, such as a prefix
GROWTH = 8  # the largest factor by which replacements lengthen a text
PATTERN = 2_000  # characters of a plain string that splits or is replaced
WORD = 256  # characters; a longer word is unknown, as splitting takes quadratic time
TEMPLATE = 64  # pieces around a text
SEGMENT = 256  # bytes to which a charsmap may map one character
UNITS = 1 << 18  # of a charsmap's trie (SentencePiece's own: 46,080)

# The tokenizer of static embeddings, in addition.
STATIC_BYTES = 1 << 21  # of the settings (BERT's: 60,000)
PROMPT = 4_096  # characters
STATIC_ADDED = 500  # tokens that stand for themselves; each is looked for at every character
STATIC_CONTENT = 64  # characters of such a token
IMAGES = 20_000  # characters that are replaced by others
IMAGE = 8  # characters that replace one
RANGES = 4_096  # of characters that are removed, spaces, or apart
WORDS = 1 << 14  # of one call's texts, whose tokens are kept in memory
CHARACTERS = 1 << 16  # the same, of characters
