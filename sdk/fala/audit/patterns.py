"""The regular expressions that tokenizers may split and replace by: those of known families.

Whether a regular expression takes exponential time on some text is hard to decide; these do not.
They are in the syntax of Oniguruma, as the families' ``tokenizer.json`` writes them.
"""

from __future__ import annotations


def _any_of(*expressions: str) -> str:
    return "|".join(expressions)


_ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE_ENDINGS = f"(?i:{_ENDINGS})"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"  # a word
_UPPER = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"  # an acronym
)

#: The expressions, to be compared as texts.
PATTERNS = frozenset(
    {
        # SentencePiece (T5, XLM-R, ALBERT, DeBERTa 3).
        " {2,}",
        # CLIP.
        r"\s+",
        _any_of(_ENDINGS, r"[\p{L}]+", r"[\p{N}]", r"[^\s\p{L}\p{N}]+"),
        # GPT-2 and RoBERTa, where they do not leave it to ByteLevel.
        _any_of(
            _ENDINGS, r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", r"\s+(?!\S)", r"\s+"
        ),
        # GPT-4 (cl100k), Llama 3.
        _any_of(_ANY_CASE_ENDINGS, _LETTERS, r"\p{N}{1,3}", _SYMBOLS, _SPACES),
        # Qwen 2 and 3.
        _any_of(_ANY_CASE_ENDINGS, _LETTERS, r"\p{N}", _SYMBOLS, _SPACES),
        # Qwen 3.5.
        _any_of(
            _ANY_CASE_ENDINGS, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}",
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _SPACES,
        ),
        # GPT-4o (o200k), Llama 4.
        _any_of(
            f"{_LOWER}{_ANY_CASE_ENDINGS}?", f"{_UPPER}{_ANY_CASE_ENDINGS}?", r"\p{N}{1,3}",
            _SYMBOLS_AND_SLASHES, _SPACES,
        ),
        # Mistral's Tekken.
        _any_of(_LOWER, _UPPER, r"\p{N}", _SYMBOLS_AND_SLASHES, _SPACES),
        # DeepSeek 3, one after another.
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        _any_of(
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
            "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+", " ?[\\p{P}\\p{S}]+[\r\n]*",
            "\\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
        ),
        # DeepSeek Coder, one after another.
        "[\r\n]",
        r"\s?\p{L}+",
        r"\s?\p{P}+",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
        # BLOOM.
        " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    }
)  # fmt: skip
