"""Texts of every kind of character, and a small WordPiece tokenizer to read them."""

import random
import sys
import unicodedata
from functools import cache

# Turkish dotted and dotless I, final and other sigma, sharp s; NUL, replacement, soft hyphen,
# joiners, byte-order mark, separators that Python and Unicode count differently as white space;
# marks; Hangul; ends of the ranges of Chinese characters; a family of emoji, a flag, a tag.
EDGES = (
    "\u0130\u0131Ii\u0307 \u03a3\u03c2\u03c3 \u00df\u1e9e \0\ufffd\ufffe\u00ad\u200b\u200d\u2060"
    "\ufeff\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u180e\u2003\u2028\u2029\u202f\u205f\u3000\t\n\r\x0b\x0c"
    "\u0301\u0323\u0345\u0483\u093c\u0e49\u20d0\u302a\U0001d165\U0001d16d\u302e\u00c5\u212b\u1e69"
    "\u1ea5\ufb03\ufdfa\uac00\ud7a3\ud7a4\u1100\u1161\u11a8\u3400\u4dbf\u4dc0\u4e00\u9fff\ua000"
    "\uf900\ufaff\U0001f600\U0001f468\u200d\U0001f469\U0001f1e9\U0001f3fd\U000e0067\U0002a6d6"
    "\U0002a6df\U0002a700\U0002b81f\U0002b820\U0002ceaf\U0002f800\U0002fa1f\U00030000\ue000"
    "\U000f0000\U0010ffff\u2029$+<=>^`|~_-'\"\u2019\u20ac"
)
SPECIAL = (
    "[CLS]", "[SEP]", "[UNK]", "[MASK]", "[cls]", "New York", "caf\u00e9", "##ing", "[PAD][MASK]",
)  # fmt: skip
SENTENCES = (
    "The minister gave a long speech on taxes, and nobody listened.",
    "I loved the film; the actors were wonderful!",
    "na\u00efve caf\u00e9 d\u00e9j\u00e0-vu in S\u00e3o Paulo",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u039f\u0394\u039f\u03a3",
    "Stra\u00dfe \u0130stanbul STRASSE",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",
    "\u4f60\u597d\u4e16\u754c and \u65e5\u672c\u8a9e\u304b\u306a",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \u05e2\u05d1\u05e8\u05d9\u05ea",
)


@cache
def characters_by_category():
    """Every character but surrogates, by Unicode's general category."""
    found = {}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category != "Cs":
            found.setdefault(category, []).append(chr(code))
    return found


def varied_texts(count, seed=0):
    """Sentences, some of whose words are changed, very long, or characters of any category."""
    draw, categories = random.Random(seed), characters_by_category()
    kinds = [*(categories[name] for name in sorted(categories)), EDGES, EDGES, EDGES]

    def other(word):
        if draw.random() < 0.5:
            return "".join(draw.choices(draw.choice(kinds), k=draw.randint(1, 3)))
        long = word[:8] * draw.choice((1, 1, 1, 12, 99, 100, 101))
        return draw.choice((word.upper(), word.title(), word[::-1], draw.choice(SPECIAL), long))

    for _ in range(count):
        words = draw.choice(SENTENCES).split(" ")[: draw.randint(1, 9)]
        for _ in range(draw.randint(0, 4)):
            at = draw.randrange(len(words))
            words[at] = draw.choice((other(words[at]), words[at] + other(words[at])))
        yield draw.choice((" ", "  ", "\n")).join(words)


def wordpiece_tokenizer(
    lowercase=True, strip_accents=None, clean_text=True, chinese=True, late=False
):
    """BERT's tokenizer, with the characters and some words of ``SENTENCES`` and ``EDGES``.

    Args:
        lowercase, strip_accents, clean_text, chinese: The normalizer's settings.
        late: Whether some added tokens are found after the normalization as well.
    """
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

    normalizer = normalizers.BertNormalizer(
        clean_text=clean_text, handle_chinese_chars=chinese, strip_accents=strip_accents,
        lowercase=lowercase,
    )  # fmt: skip
    splitter = pre_tokenizers.BertPreTokenizer()
    # Without the marks whose order is changed, which no known vocabulary has.
    edges = [each for each in EDGES if unicodedata.combining(each) < 200 or each == "\u0301"]
    known = [*SENTENCES, " ".join(edges), "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    words = [
        word
        for text in known
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    ]
    letters = sorted({letter for word in words for letter in word})
    ends = [f"##{word[cut:]}" for word in words for cut in (1, 3) if len(word) > cut + 1]
    starts = [word[:cut] for word in words for cut in (2, 4, 99) if len(word) > 1]
    known = [*letters, *(f"##{each}" for each in letters), *starts, *ends]
    tokens = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *known])
    ids = {token: id for id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.add_special_tokens(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True)]
    )
    if late:
        tokenizer.add_tokens(["New York", AddedToken("caf\u00e9", rstrip=True), "new"])
    return tokenizer
