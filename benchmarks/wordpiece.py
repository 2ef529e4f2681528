"""The tokens of many varied texts by a device's own WordPiece, and by the tokenizers library.

    python benchmarks/wordpiece.py
    python benchmarks/wordpiece.py --tokenizer model/tokenizer.json --texts sentences.txt --seed 7

The texts are characters of every category and block of Unicode, sentences with changed words and
tokenizers' own tokens in them, and long words (tests/support/varied_texts.py). Any difference is
printed, and the command fails. The time is processor time, of reading the sentences alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
from support.measuring import benchmark
from tokenizers import Tokenizer

from fala.backbones.wordpiece import WordPiece
from fala_export.models.wordpiece import plain_wordpiece

# The texts are those of the tests.
sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from varied_texts import SENTENCES, varied_texts, wordpiece_tokenizer

_TOGETHER = 10_000
_SHOWN = 10


@benchmark
@click.option("--count", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--tokenizer", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--texts", "source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run(count: int, file: Path | None, source: Path | None, seed: int) -> dict[str, Any]:
    """Compare the tokens of varied texts."""
    tokenizer = wordpiece_tokenizer(late=True) if file is None else Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    plain = WordPiece(*plain_wordpiece(tokenizer))
    lines = source.read_text(encoding="utf-8").splitlines() if source else SENTENCES
    sentences = [line for line in lines if line]
    wrong = 0
    for texts in _blocks(varied_texts(count, seed, sentences)):
        library = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for text, encoding in zip(texts, library, strict=True):
            if plain.ids(text) != encoding.ids:
                wrong += 1
                if wrong <= _SHOWN:
                    click.echo(f"differs: {text!a}", err=True)
    start = time.process_time()
    words = sum(len(text.split()) for text in sentences)
    for text in sentences:
        plain.ids(text)
    spent = time.process_time() - start
    return {
        "texts": count,
        "wrong": wrong,
        "words_of_a_sentence": words / len(sentences),
        "milliseconds_of_a_sentence": 1_000 * spent / len(sentences),
    }


def _blocks(texts: Iterator[str]) -> Iterator[list[str]]:
    while block := list(islice(texts, _TOGETHER)):
        yield block


if __name__ == "__main__":
    run()
