"""A static embedding is the mean of the tokens' vectors, and it is read without any library."""

import json

import numpy as np
import pytest

from bundles import (
    WORDS,
    character_table,
    repacked,
    static_files,
    static_settings,
    write_static_release,
)
from fala import Bundle, BundleFormatError, Pair
from fala.audit import limits
from fala.backbones import StaticEmbeddings
from fala.bundle import format as layout

TOKENS = ["[UNK]", "good", "film", "un", "##heard", "##of", "", "[CLS]", "!"]
VECTORS = np.random.default_rng(0).normal(size=(len(TOKENS), 4)).astype(np.float32)


def settings(**changes):
    given = static_settings(**changes)
    added = [
        {"token": "[CLS]", "id": 7, "normalized": False},
        {"token": "new york", "id": 6, "normalized": True},
    ]
    given["tokenizer"] |= {"unknown": "[UNK]", "added": added, "longest_word": 12}
    return given


def encoder(max_length=None, **changes):
    return StaticEmbeddings(TOKENS, settings(**changes), VECTORS, max_length=max_length)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Good film!", [1, 2, 8]),
        ("unheardof", [3, 4, 5]),
        ("unheard of", [3, 4]),
        ("GOOD\0fil\x07m", []),
        ("good\tfilm\n", [1, 2]),
        ("[CLS]good [cls]", [7, 1]),
        ("in New York good", [6, 1]),
        ("un" + "heard" * 2, [3, 4, 4]),
        ("un" + "heard" * 3, []),
        ("\u4f60 good \U0001f600", [1]),
        ("", []),
    ],
)
def test_a_text_is_the_mean_of_its_known_tokens(text, tokens):
    expected = VECTORS[tokens].mean(axis=0) if tokens else np.zeros(4)
    np.testing.assert_allclose(encoder().encode([text]), [expected], rtol=1e-6)


def test_settings_change_what_is_read():
    good, film, unknown = VECTORS[[1, 2, 0]]
    for changes, text, expected in (
        ({"skips_unknown": False}, "good word", (good + unknown) / 2),
        ({"prompt": "film: "}, "good", (good + film) / 2),
        ({"characters": 4}, "good film", good),
        ({"max_length": 2}, "word good film", good),  # cut before unknown words are left out
        ({"normalized": True}, "good film", (good + film) / np.linalg.norm(good + film)),
        ({"normalized": True}, "", np.zeros(4)),
        ({}, Pair("good", "film"), (good + film) / 2),
    ):
        np.testing.assert_allclose(encoder(**changes).encode([text]), [expected], rtol=1e-5)


def tokenizer(**changes):
    return {"tokenizer": {**settings()["tokenizer"], **changes}}


def table(**changes):
    return tokenizer(split={**character_table(), **changes})


ADDED = {"token": "x", "id": 1, "normalized": False}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"more": 1}, "and no others"),
        ({"prompt": None}, "a prompt must be a text"),
        ({"characters": 0}, "characters must be null"),
        ({"characters": True}, "characters must be null"),
        ({"normalized": 1}, "must be true or false"),
        ({"tokenizer": 1}, "the tokenizer is not an object"),
        (tokenizer(unknown="none"), "unknown words"),
        (tokenizer(prefix="#" * 65), "a prefix is not a text"),
        (tokenizer(longest_word=0), "longest_word is not a whole number from 1 to 256"),
        (tokenizer(added={}), "not a list"),
        (tokenizer(added=[ADDED] * (limits.STATIC_ADDED + 1)), "not a list"),
        (tokenizer(added=[ADDED, ADDED]), "listed twice"),
        (tokenizer(added=[{**ADDED, "token": ""}]), "an added token is not a text"),
        (tokenizer(added=[{**ADDED, "id": len(TOKENS)}]), "the id of an added token"),
        (tokenizer(added=[{**ADDED, "normalized": 2}]), "normalized is not true or false"),
        (tokenizer(added=[None]), "the added token is not an object"),
        (tokenizer(more=1), "other parts than added"),
        (tokenizer(split=[]), "the table of characters is not an object"),
        (table(removed=None), "not a list"),
        (table(spaces=[[1]]), "a range of characters"),
        (table(apart=[[2, 1]]), "the last code point"),
        (table(apart=[[0, 1 << 21]]), "the last code point"),
        (table(apart=[[0, 1]] * (limits.RANGES + 1)), "not a list"),
        (table(images=[]), "images is not an object"),
        (table(images={"ab": "c"}), "a character is not"),
        (table(images={"a": 1}), "an image is not a text"),
        (table(images={"a": "b" * 9}), "an image is not a text"),
        (table(hangul=0), "hangul"),
    ],
)
def test_hostile_settings_are_rejected(changes, match):
    with pytest.raises(BundleFormatError, match=match):
        StaticEmbeddings(TOKENS, {**settings(), **changes}, VECTORS)


def test_hostile_vocabularies_are_rejected():
    for given in ([], None, {"prompt": ""}):
        with pytest.raises(BundleFormatError, match="static embeddings have the settings"):
            StaticEmbeddings(TOKENS, given, VECTORS)
    for tokens, match in (
        ([*TOKENS[:-1], "good"], "twice"), ([*TOKENS[:-1], "a" * 257], "more than 256")
    ):  # fmt: skip
        with pytest.raises(BundleFormatError, match=match):
            StaticEmbeddings(tokens, settings(), VECTORS)


def test_hostile_releases_are_rejected(tmp_path):
    good = write_static_release(tmp_path / "good.fala")
    raw = json.dumps(static_settings())
    for changes, error, match in (
        ({layout.STATIC_SETTINGS: b"{"}, BundleFormatError, "is not JSON"),
        ({layout.STATIC_SETTINGS: b"[" * 100_000}, BundleFormatError, "is not JSON"),
        ({layout.STATIC_SETTINGS: b'{"a": 1, "a": 1}'}, BundleFormatError, "twice"),
        ({layout.STATIC_SETTINGS: raw.encode() + b" " * (1 << 21)}, BundleFormatError, "bytes"),
        ({layout.VOCABULARY: b"\n" * len(WORDS)}, BundleFormatError, "unknown words"),
        ({layout.VOCABULARY: b"<unk>\n"}, BundleFormatError, "1 word, but vectors"),
        (static_files(dimension=4), BundleFormatError, "4 dimensions"),
    ):  # fmt: skip
        path = tmp_path / "bad.fala"
        path.write_bytes(repacked(good.path, changes))
        with pytest.raises(error, match=match):
            Bundle.open(path).backbone()
    assert good.backbone().encode(["a good film"]).any()
