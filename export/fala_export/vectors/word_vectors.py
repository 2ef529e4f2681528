"""Export static word vectors: convert a text file of GloVe, word2vec or fastText to a bundle."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fala.base.errors import be, counted
from fala_export.base.checks import check_release_name
from fala_export.base.errors import ExportError
from fala_export.recipe.settings import VectorOptions
from fala_export.vectors.files import open_lines
from fala_export.vectors.lines import find_dimension, find_header, parse_lines
from fala_export.vectors.table import VectorTable, write_table

#: Published files have a handful of bad lines in a million. A file with one in a hundred was
#: truncated, mixed up or written in another format.
MAX_DAMAGED = 0.01

_BLOCK = 4_096  # Number of lines that are parsed and stored at a time.
_PROBE = 100  # Number of lines whose majority sets the dimension, because some may be damaged.
_SHOWN = 3
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class Damage:
    """Damaged lines that were left out.

    Attributes:
        lines: Number of damaged lines.
        first: The first damaged lines, each with its number and the reason.
    """

    lines: int = 0
    first: list[str] = field(default_factory=list)

    def note(self, number: int, reason: str, lines: int = 1) -> None:
        """Count damaged lines, starting at a line number."""
        self.lines += lines
        if len(self.first) < _SHOWN:
            self.first.append(f"line {number}: {reason}")

    def __str__(self) -> str:
        """Describe the first damaged lines in one line."""
        return "; ".join(self.first) + ("; ..." if self.lines > len(self.first) else "")


def read_vectors(
    path: Path,
    precision: str,
    *,
    top: int | None = None,
    vocabulary: Collection[str] | None = None,
) -> tuple[VectorTable, Damage]:
    """Read the text format of GloVe, word2vec and fastText: one word and its numbers per line.

    The file is streamed. A word may contain spaces (as in glove.840B), and the first line may be a
    header of two whole numbers (word2vec, fastText). Lines that cannot be used are left out and
    counted, as are lines that the header promises but the file lacks.

    Args:
        path: The text file, plain or in a .gz or .zip.
        precision: Either ``"int8"`` or ``"float16"``.
        top: Most words to keep; None keeps all.
        vocabulary: The only words to keep; None keeps all.

    Raises:
        ExportError: The file cannot be read, or no line of it can be used.
    """
    damage = Damage()
    with open_lines(path) as lines:
        probe = list(islice(lines, _PROBE))
        header = _first_line(path, probe)
        promised, dimension = header or (0, find_dimension(probe))
        table = VectorTable(max(dimension, 1), precision)
        numbered = enumerate(chain(probe, lines), start=1)
        if header:
            next(numbered)
        selected = _select(numbered, vocabulary, promised, damage)
        limits = [top, None if vocabulary is None else len(vocabulary)]
        limit = min((limit for limit in limits if limit is not None), default=None)
        _fill(table, selected, vocabulary, limit, damage)
    if not table.words and vocabulary is not None and not damage.lines:
        raise ExportError(f"{path}: contains none of the {len(vocabulary)} requested words")
    if not table.words:
        reason = damage if damage.lines else "it is empty"
        raise ExportError(f"{path}: no line has a word and its vector ({reason})")
    return table, damage


def export_word_vectors(
    source: Path,
    out: Path,
    options: VectorOptions,
    *,
    max_damaged: float = MAX_DAMAGED,
    name: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Export word vectors as a bundle.

    Args:
        source: A text file of GloVe, word2vec or fastText, plain or in a .gz or .zip.
        out: The bundle to write; not changed if anything fails.
        options: Which vectors to keep, and their precision.
        max_damaged: Share of damaged lines, from 0 to 1, above which nothing is written.
        name: The name in the manifest; None uses the file's name.
        details: Further details for the manifest.

    Returns:
        The summary of ``write_table`` with the number of damaged lines and the first of them; the
        number of words with capitals (which a device never finds, because it looks words up in
        lower case); and the number of words of ``options.vocab`` that the file does not have.

    Raises:
        ExportError: The source cannot be used, or the output cannot be written.
    """
    check_release_name(name or _stem(source))
    words = None if options.vocab is None else _read_vocabulary(options.vocab)
    table, damage = read_vectors(source, options.precision, top=options.top, vocabulary=words)
    total = damage.lines + len(table.words)
    if damage.lines > max_damaged * total:
        raise ExportError(
            f"{source}: {damage.lines} of {counted(total, 'line')} {be(damage.lines)} damaged, "
            f"more than the share of {max_damaged:g} that --max-damaged allows: {damage}"
        )
    summary = write_table(
        out, table, name or _stem(source), {"damaged_lines": damage.lines, **(details or {})}
    )
    summary["words_with_capitals"] = sum(word != word.lower() for word in table.words)
    if words is not None:
        summary["missing_words"] = len(words - table.words.keys())
    return {**summary, "damaged_lines": damage.lines, "damage": str(damage)}


def _first_line(path: Path, probe: list[bytes]) -> tuple[int, int] | None:
    """Check that the file is text, and find its header."""
    if not probe:
        return None
    probe[0] = probe[0].removeprefix(_BYTE_ORDER_MARK)
    header = find_header(probe[0])
    if any(b"\0" in line for line in probe):
        if header:
            raise ExportError(
                f"{path}: is in word2vec's binary format; export its text format instead "
                "(gensim: KeyedVectors.load_word2vec_format(..., binary=True), then "
                "save_word2vec_format(..., binary=False))"
            )
        raise ExportError(
            f"{path}: is not a text file; for fastText, use the .vec file, not the .bin file"
        )
    return header


def _select(
    numbered: Iterator[tuple[int, bytes]],
    vocabulary: Collection[str] | None,
    promised: int,
    damage: Damage,
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines whose words may be in the vocabulary, with their numbers.

    Words that the header promised and the file lacks are noted as damage.
    """
    starts = None if vocabulary is None else {word.encode().split(b" ")[0] for word in vocabulary}
    number = 1
    for number, line in numbered:
        if starts is None or line.partition(b" ")[0] in starts:
            yield number, line
    absent = promised - (number - 1)
    if absent > 0:
        damage.note(
            number + 1, f"the file ends {counted(absent, 'word')} before its header says", absent
        )


def _fill(
    table: VectorTable,
    lines: Iterator[tuple[int, bytes]],
    vocabulary: Collection[str] | None,
    limit: int | None,
    damage: Damage,
) -> None:
    while True:
        # There are at most as many lines as missing words, so nothing after the last word is read.
        room = _BLOCK if limit is None else min(_BLOCK, limit - len(table.words))
        block = list(islice(lines, room))
        if not block:
            return
        words, vectors, faults = parse_lines([line for _, line in block], table.dimension)
        usable = [
            position
            for position, word in enumerate(words)
            if position not in faults and (vocabulary is None or word in vocabulary)
        ]
        reasons = table.add([words[position] for position in usable], vectors[usable])
        faults.update((usable[position], reason) for position, reason in reasons.items())
        for position in sorted(faults):
            damage.note(block[position][0], faults[position])


def _stem(path: Path) -> str:
    name = path.name
    for suffix in (".gz", ".zip", ".txt", ".vec"):
        name = name.removesuffix(suffix)
    return name


def _read_vocabulary(path: Path) -> set[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ExportError(f"{path}: is not UTF-8 at byte {error.start}") from error
    words = {line.removesuffix("\r") for line in text.split("\n")} - {""}
    if not words:
        raise ExportError(f"{path}: has no words; expected one on each line")
    return words
