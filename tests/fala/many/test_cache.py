"""Devices share embeddings in memory."""

import pickle

import numpy as np

from fala.many.cache import EncodingCache


class Counting:
    """An encoder that keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked += texts
        return np.array([[len(text), 1] for text in texts], dtype=np.float32).reshape(-1, 2)


def test_a_text_is_encoded_once():
    cache, encode = EncodingCache(1_000), Counting()
    first = cache.encode(["a", "bb", "a"], encode)
    again = cache.encode(["ccc", "bb"], encode)
    assert encode.asked == ["a", "bb", "ccc"] and cache.encoded == 3
    assert first.tolist() == [[1, 1], [2, 1], [1, 1]] and again.tolist() == [[3, 1], [2, 1]]
    assert cache.encode([], encode).shape == (0, 2)


def test_backbones_are_told_apart():
    cache, encode = EncodingCache(1_000), Counting()
    cache.encode(["a"], encode, "one")
    cache.encode(["a"], encode, "other")
    assert encode.asked == ["a", "a"]
    cache.encode(["xa"], encode, "")
    cache.encode(["a"], encode, "x")
    cache.encode(["a"], encode, "\0")
    cache.encode(["\0a"], encode, "")
    assert encode.asked[2:] == ["xa", "a", "a", "\0a"]


def test_the_least_recently_used_embedding_is_dropped():
    cache, encode = EncodingCache(2 * 8), Counting()
    for text in ("a", "b", "a", "c", "a", "b"):
        cache.encode([text], encode)
    assert encode.asked == ["a", "b", "c", "b"]


def test_no_text_is_kept_and_a_result_of_a_wrong_shape_is_the_callers():
    cache = EncodingCache(1_000)
    cache.encode(["a secret"], Counting())
    kept = pickle.dumps(dict(cache._embeddings))
    assert b"secret" not in kept
    assert cache.encode(["b"], lambda _: np.zeros((2, 2), np.float32)).shape == (2, 2)
