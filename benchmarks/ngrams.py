"""Time of the lexical view, beside plain Python and beside SciPy's sparse product.

    python benchmarks/ngrams.py
    python benchmarks/ngrams.py --texts 1400 --json

Hashing: the n-grams of synthetic texts, all at once and one at a time, beside the same n-grams
found by a regular expression and loops and hashed by zlib. Gram matrix: of the texts' rows, beside
one product of SciPy's sparse arrays. Words are drawn as often as Zipf's law has it. The ways take
turns; the figures are the least processor time of several turns, since other work only adds to it.
"""

from __future__ import annotations

import itertools
import os
import re
import zlib
from typing import Any

import click
import numpy as np
from scipy.sparse import csr_array
from support.measuring import REPEATS, benchmark, in_turns

from fala.release import BUCKETS, Lexicon, ngrams
from fala.release.device_fit import one_blas_thread

_TOKEN = re.compile(r"[a-z0-9']+|[^\sa-z0-9']")
_VOCABULARY = 20_000
_LETTERS = list("eeeeeetttttaaaaooooiiiinnnnssshhhrrrddlllucmwfgypbvk")


def synthetic(count: int, words: int, seed: int) -> list[str]:
    """Texts of so many words, with a full stop each."""
    random = np.random.default_rng(seed)
    lengths = 2 + random.poisson(3, _VOCABULARY)
    vocabulary = ["".join(random.choice(_LETTERS, length)) for length in lengths]
    frequency = 1 / np.arange(1, _VOCABULARY + 1)
    chosen = random.choice(vocabulary, (count, words), p=frequency / frequency.sum())
    return [" ".join(row) + "." for row in chosen]


def plain(text: str) -> set[int]:
    """The n-grams of one text, by loops."""
    tokens = _TOKEN.findall(text.lower())
    grams = {*tokens, *(f"{one} {two}" for one, two in itertools.pairwise(tokens))}
    for token in tokens:
        framed = f"<{token}>"
        for length in (3, 4, 5):
            for start in range(len(framed) - length + 1):
                grams.add("#" + framed[start : start + length])
    return {zlib.crc32(gram.encode()) % BUCKETS for gram in grams}


@benchmark
@click.option("--texts", type=click.IntRange(1), default=1_400, show_default=True)
@click.option("--words", type=click.IntRange(1), default=22, show_default=True, help="A text.")
@REPEATS
def main(texts: int, words: int, repeats: int, seed: int) -> dict[str, Any]:
    """Run them and say what they took."""
    documents = synthetic(texts, words, seed)
    rows = Lexicon.fit(documents).rows(documents)
    shape = (len(rows), rows.width)
    values, starts = rows.values.astype(np.float64), rows.starts.astype(np.int32)
    matrix = csr_array((values, rows.buckets, starts), shape=shape)
    with one_blas_thread():
        turns = in_turns(
            {
                "all": lambda: ngrams(documents),
                "one": lambda: [ngrams([document]) for document in documents],
                "plain": lambda: [plain(document) for document in documents],
                "gram": rows.gram,
                "sparse": lambda: (matrix @ matrix.T).toarray(),
            },
            repeats,
        )
    taken = {name: 1e3 * min(one.processor) for name, one in turns.items()}
    return {
        "texts": texts,
        "ngrams_a_text": len(rows.buckets) / texts,
        "load": os.getloadavg()[0],
        "microseconds_a_text": 1e3 * taken["all"] / texts,
        "microseconds_a_text_alone": 1e3 * taken["one"] / texts,
        "microseconds_a_text_in_plain_python": 1e3 * taken["plain"] / texts,
        "times_as_fast": taken["plain"] / taken["all"],
        "times_as_fast_alone": taken["plain"] / taken["one"],
        "gram_milliseconds": taken["gram"],
        "gram_milliseconds_of_one_sparse_product": taken["sparse"],
        "gram_times_as_fast": taken["sparse"] / taken["gram"],
    }


if __name__ == "__main__":
    main()
