"""Two tasks of GLUE (Wang et al., ICLR 2019): acceptable sentences, and paraphrases.

- CoLA (Warstadt et al., 2018): ``train.tsv`` and ``val.tsv``, the official training set in two, and
  ``dev.tsv``, the official development set: source, label, mark and sentence, without a header.
- MRPC (Dolan and Brockett, 2005): ``msr_paraphrase_train.txt`` and ``msr_paraphrase_test.txt``, the
  corpus's own files: label, two ids and two sentences. A tenth of the training pairs, drawn at
  random, is for validation; GLUE's own choice is in another file.

A benchmark has no users. Its training rows are the public; one simulated user has the validation
rows as train rows, and the official development rows (CoLA) or test rows (MRPC) as test rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fala import DataError, Pair
from fala_sim.data.conversion import Conversion, ConvertedRow, folded
from fala_sim.data.left_out import LeftOut
from fala_sim.data.location import data_folder
from fala_sim.data.tables import read_lines
from fala_sim.records.digests import digest_of_parts, file_digest

#: The users of the rows.
USER, PUBLIC = "glue", "public"
COLA = ("train.tsv", "val.tsv", "dev.tsv")
MRPC = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt")

_VALIDATION = 0.1  # share of MRPC's training pairs, which is GLUE's own share
_COLUMNS = {"cola": 4, "mrpc": 5}
_LABELS = ("0", "1")

_Labelled = tuple[str, int]


@dataclass(frozen=True)
class BenchmarkRows:
    """A task's rows, each a text (or ``fala.Pair``) with its label.

    Attributes:
        training: Rows for training.
        validation: Rows for choosing settings; if empty, they are drawn from the training rows.
        test: Rows for reporting.
    """

    training: Sequence[_Labelled]
    validation: Sequence[_Labelled]
    test: Sequence[_Labelled]


def read_cola(folder: Path, left_out: LeftOut) -> BenchmarkRows:
    """Read CoLA.

    Raises:
        DataError: A file cannot be read.
    """
    return BenchmarkRows(*(_read(folder / name, "cola", left_out) for name in COLA))


def read_mrpc(folder: Path, left_out: LeftOut) -> BenchmarkRows:
    """Read MRPC.

    Raises:
        DataError: A file cannot be read.
    """
    training, test = (_read(folder / name, "mrpc", left_out) for name in MRPC)
    return BenchmarkRows(training, (), test)


def convert_benchmark(benchmark: BenchmarkRows, *, seed: int, left_out: LeftOut) -> Conversion:
    """Make rows from a benchmark.

    Test texts are in no other rows, and validation texts in no public rows.

    Args:
        benchmark: The task.
        seed: Seed of the draw of validation rows if the task has none.
        left_out: Counts of what the reader left out; more is added here.

    Raises:
        DataError: A split is empty.
    """
    training, validation = list(benchmark.training), list(benchmark.validation)
    if not validation:
        size = round(_VALIDATION * len(training))
        chosen = set(random.Random(f"validation {seed}").sample(range(len(training)), size))
        validation = [row for position, row in enumerate(training) if position in chosen]
        training = [row for position, row in enumerate(training) if position not in chosen]
    judged: set[str] = set()
    parts: dict[str, list[ConvertedRow]] = {}
    # Test rows come first, so that a text in several splits stays in the most important one.
    for split, part in (("test", benchmark.test), ("train", validation), ("public", training)):
        user = PUBLIC if split == "public" else USER
        split_rows = [ConvertedRow(user, split, text, label) for text, label in part]
        parts[split] = [row for row in split_rows if folded(row.judged) not in judged]
        left_out.add(
            "rows of texts that are in another split", count=len(split_rows) - len(parts[split])
        )
        judged.update(folded(row.judged) for row in split_rows)
    if not all(parts.values()):
        raise DataError("a benchmark needs rows for training, validation and test")
    return Conversion([*parts["public"], *parts["train"], *parts["test"]], left_out)


@dataclass(frozen=True)
class BenchmarkFiles:
    """The files of a benchmark.

    Attributes:
        files: Names of the files.
        read: Function that reads their folder.
        page: Address of the publisher's page, with the terms.
    """

    files: tuple[str, ...]
    read: Callable[[Path, LeftOut], BenchmarkRows]
    page: str

    def digest(self, folder: Path) -> str:
        """Return the SHA-256 of the files in a folder, in hexadecimal digits."""
        return digest_of_parts(
            f"{name}\0{file_digest(folder / name)}" for name in sorted(self.files)
        )


def _read(path: Path, task: str, left_out: LeftOut) -> list[_Labelled]:
    rows: list[_Labelled] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        cells = line.split("\t")
        label = cells[1] if task == "cola" and len(cells) > 1 else cells[0]
        if number == 1 and label not in _LABELS:
            continue  # a header, which some copies have
        texts = [cell.strip() for cell in cells[3:]]
        if len(cells) != _COLUMNS[task] or label not in _LABELS or not all(texts):
            left_out.add(f"damaged lines of {path.name}", f"line {number}")
            continue
        rows.append((texts[0] if task == "cola" else Pair(*texts), int(label)))
    return rows


#: The benchmarks by name, which is also the name of their folder.
SOURCES = {
    "cola": BenchmarkFiles(COLA, read_cola, "https://nyu-mll.github.io/CoLA/"),
    "mrpc": BenchmarkFiles(
        MRPC, read_mrpc, "https://www.microsoft.com/en-us/download/details.aspx?id=52398"
    ),
}


def find(name: str, data_dir: Path | None) -> tuple[BenchmarkFiles, Path]:
    """Return a benchmark's source, and the folder of its files.

    Args:
        name: One of ``SOURCES``.
        data_dir: Folder of the data sets; None uses the default.

    Raises:
        DataError: A file is missing; the error says where it is published.
    """
    source, folder = SOURCES[name], data_folder(data_dir) / name
    for file in source.files:
        if not (folder / file).is_file():
            raise DataError(
                f"{folder / file}: no such file; get it from its publisher ({source.page}), or "
                "name the folder of your data sets with --data-dir or FALA_DATA"
            )
    return source, folder
