"""Plain English from the corpora of nltk_data, to train the built-in models on.

Every corpus has its own markup; the readers remove it, undo the spacing of
tokenized text (``do n't , he said`` becomes ``don't, he said``) and split into sentences.
Only word lists made from the texts may leave the vendor's machine, never the texts.
"""

from __future__ import annotations

import html
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fala_export.base.errors import ExportError

Document = list[str]
"""The sentences of one text, in order."""

# Files of the archives that describe the corpus.
_NOT_TEXT = ("readme", "categories", "cats.txt", ".csv", ".json", ".py")
_LONGEST_SENTENCE = 80  # words; more is a table or a list, not a sentence


@dataclass(frozen=True)
class Corpus:
    """One archive of nltk_data.

    Attributes:
        name: The archive's name without ``.zip``.
        licence: The licence of its texts.
        read: Turns one file's text into its documents.
    """

    name: str
    licence: str
    read: Callable[[str], Iterator[Document]]


_SPACES = re.compile(r"\s+")
_SPACE_BEFORE = re.compile(r"\s+([.,!?;:%)\]}]|n't\b|'(?:s|re|ve|ll|d|m)\b)", re.IGNORECASE)
_SPACE_AFTER = re.compile(r"([(\[{$#])\s+")
_QUOTES = re.compile(r"``|''|[“”]")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
_OPINION_TAGS = re.compile(r"^[^#]*##\s*")
_SIDE_TAGS = re.compile(r"</?(?:Pros|Cons)>", re.IGNORECASE)


def clean(text: str) -> str:
    """Replace entities, typographic quotes and tokenizers' spacing in one line."""
    text = html.unescape(html.unescape(text)).replace("’", "'")
    text = _QUOTES.sub('"', text)
    text = _SPACES.sub(" ", text)
    text = _SPACE_BEFORE.sub(r"\1", text)
    return _SPACE_AFTER.sub(r"\1", text).strip()


def split_sentences(line: str) -> Iterator[str]:
    """Split a cleaned line at ends of sentences before a capital or digit."""
    for sentence in _SENTENCE_END.split(line):
        length = sentence.count(" ") + 1
        if length <= _LONGEST_SENTENCE and any(character.isalpha() for character in sentence):
            yield sentence


def _whole_file(text: str) -> Iterator[Document]:
    """Speeches and reviews: one document per file."""
    yield [sentence for line in text.splitlines() for sentence in split_sentences(clean(line))]


def _line_by_line(text: str) -> Iterator[Document]:
    """Unrelated snippets, one a line."""
    for line in text.splitlines():
        yield list(split_sentences(clean(_SIDE_TAGS.sub("", line))))


def _opinions(text: str) -> Iterator[Document]:
    """Product reviews: ``[t]title`` opens one, ``feature[+2]##sentence`` follows."""
    document: Document = []
    for line in text.splitlines():
        if line.startswith("*"):
            continue
        if line.startswith("[t]"):
            yield document
            document = []
            line = line.removeprefix("[t]")
        document.extend(split_sentences(clean(_OPINION_TAGS.sub("", line))))
    yield document


def _tagged(text: str) -> Iterator[Document]:
    """Part-of-speech tagged text: ``word_TAG``, separated by spaces."""
    untagged = (
        " ".join(token.rpartition("_")[0] or token for token in line.split())
        for line in text.splitlines()
    )
    yield [sentence for line in untagged for sentence in split_sentences(clean(line))]


_CC_BY = "CC BY 4.0"
CORPORA = (
    Corpus("inaugural", "public domain", _whole_file),
    Corpus("state_union", "public domain", _whole_file),
    Corpus("movie_reviews", _CC_BY, _whole_file),
    Corpus("subjectivity", _CC_BY, _line_by_line),
    Corpus("sentence_polarity", _CC_BY, _line_by_line),
    Corpus("pros_cons", _CC_BY, _line_by_line),
    Corpus("product_reviews_1", _CC_BY, _opinions),
    Corpus("product_reviews_2", _CC_BY, _opinions),
    Corpus("masc_tagged", "free for any use", _tagged),
)


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # the encoding of the older corpora; it never fails


def documents(folder: Path) -> Iterator[Document]:
    """Read every document of the nine corpora, in a fixed order.

    Args:
        folder: Folder of nltk_data's archives.

    Raises:
        ExportError: An archive is missing or cannot be read.
    """
    for corpus in CORPORA:
        path = folder / f"{corpus.name}.zip"
        try:
            with zipfile.ZipFile(path) as archive:
                for name in sorted(archive.namelist()):
                    file = PurePosixPath(name).name.lower()
                    if name.endswith("/") or any(part in file for part in _NOT_TEXT):
                        continue
                    for document in corpus.read(_decode(archive.read(name))):
                        if document:
                            yield document
        except (OSError, zipfile.BadZipFile) as error:
            raise ExportError(f"cannot read the corpus {path.name}: {error}") from error
