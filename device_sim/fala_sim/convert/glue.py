"""Two tasks of GLUE (Wang et al., ICLR 2019): acceptable sentences, and paraphrases.

- CoLA (Warstadt et al., 2018): ``train.tsv`` and ``val.tsv``, the official training set in two, and
  ``dev.tsv``, the official development set: source, label, mark and sentence, without a header.
- MRPC (Dolan and Brockett, 2005): ``msr_paraphrase_train.txt`` and ``msr_paraphrase_test.txt``, the
  corpus's own files: label, two ids and two sentences. A tenth of the training pairs, drawn at
  random, is for validation; GLUE's own choice is in another file.

A benchmark has no people. Its training rows are the public; one user has the validation rows as
train rows, and the official development (CoLA) or test rows (MRPC) as test rows, as
``fala-export adapter --own-splits`` expects.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fala import DataError, Pair
from fala_sim.convert.conversion import Conversion, TextRow, check_public, drawn_rows, folded
from fala_sim.convert.format import DataSet, Format, Opened
from fala_sim.convert.left_out import LeftOut
from fala_sim.convert.tables import read_lines

#: The users of the rows.
USER, PUBLIC = "glue", "public"
COLA = ("train.tsv", "val.tsv", "dev.tsv")
MRPC = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt")

_VALIDATION = 0.1  # of MRPC's training pairs; GLUE's own share
_COLUMNS = {"cola": 4, "mrpc": 5}
_LABELS = ("0", "1")

_Labelled = tuple[str, int]


@dataclass(frozen=True)
class Benchmark:
    """A task's rows, each a text (or ``fala.Pair``) with its label.

    Attributes:
        training: For training.
        validation: For choosing settings; if empty, drawn from the training rows.
        test: For reporting.
    """

    training: Sequence[_Labelled]
    validation: Sequence[_Labelled]
    test: Sequence[_Labelled]


def read_cola(folder: Path, left_out: LeftOut) -> Benchmark:
    """Read CoLA.

    Raises:
        DataError: A file cannot be read.
    """
    return Benchmark(*(_read(folder / name, "cola", left_out) for name in COLA))


def read_mrpc(folder: Path, left_out: LeftOut) -> Benchmark:
    """Read MRPC.

    Raises:
        DataError: A file cannot be read.
    """
    training, test = (_read(folder / name, "mrpc", left_out) for name in MRPC)
    return Benchmark(training, (), test)


def convert(
    benchmark: Benchmark, *, users: int, seed: int, public: int | None = None, left_out: LeftOut
) -> Conversion:
    """Make rows of a benchmark.

    Test texts are in no other rows, and validation texts in no public rows.

    Args:
        benchmark: The task.
        users: 1.
        seed: Of the draws of public rows, and of validation rows if the task has none.
        public: The most public rows; None for all.
        left_out: What the reader left out; more is added here.

    Raises:
        DataError: If ``users`` is not 1, or a split is empty.
    """
    if users != 1:
        raise DataError(f"a benchmark has no people: it has 1 user, not {users}")
    training, validation = list(benchmark.training), list(benchmark.validation)
    if not validation:
        size = round(_VALIDATION * len(training))
        chosen = set(random.Random(f"validation {seed}").sample(range(len(training)), size))
        validation = [row for position, row in enumerate(training) if position in chosen]
        training = [row for position, row in enumerate(training) if position not in chosen]
    judged: set[str] = set()
    parts: dict[str, list[TextRow]] = {}
    # Test rows first: a text in several splits stays in the most important one.
    for split, part in (("test", benchmark.test), ("train", validation), ("public", training)):
        user = PUBLIC if split == "public" else USER
        split_rows = [TextRow(user, split, text, label) for text, label in part]
        parts[split] = [row for row in split_rows if folded(row.text) not in judged]
        left_out.add("rows of what is in another split", count=len(split_rows) - len(parts[split]))
        judged.update(folded(row.text) for row in split_rows)
    drawn = drawn_rows(parts["public"], public, seed)
    left_out.add("public rows beyond --public", count=len(parts["public"]) - len(drawn))
    if not parts["train"] or not parts["test"]:
        raise DataError("a benchmark needs rows to validate and to test on; there are none")
    rows = [*drawn, *parts["train"], *parts["test"]]
    check_public(rows, users)
    return Conversion(rows, left_out)


def _read(path: Path, task: str, left_out: LeftOut) -> list[_Labelled]:
    rows: list[_Labelled] = []
    for number, line in read_lines(path, left_out):
        if line is None or not line.strip():
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


def _opener(
    read: Callable[[Path, LeftOut], Benchmark],
) -> Callable[[Path, LeftOut], Opened]:
    def open_folder(folder: Path, left_out: LeftOut) -> Opened:
        # Two people: the user, and the public.
        return Opened(partial(convert, read(folder, left_out)), lambda: 2, left_out)

    return open_folder


FORMATS = {
    "cola": Format(
        _opener(read_cola),
        COLA,
        """Convert CoLA: train.tsv, val.tsv and dev.tsv of DIR; label 1 is acceptable.

        The training rows are the public; one user has the validation rows as train rows, and the
        official development set as test rows: fala-export adapter --own-splits takes them so.
        """,
        users=1,
        benchmark=True,
    ),
    "mrpc": Format(
        _opener(read_mrpc),
        MRPC,
        """Convert MRPC: the two files of the corpus in DIR, pairs; label 1 is a paraphrase.

        As by `cola`; a tenth of the training pairs, drawn at random, is for validation.
        """,
        users=1,
        benchmark=True,
    ),
}

DATA_SETS = (
    DataSet(
        "cola", "CoLA (Warstadt et al., 2018): sentences of linguists, acceptable or not", "cola",
        ("cola",),
        licence="none stated by the publisher; sentences are their authors', for research",
        page="https://nyu-mll.github.io/CoLA/",
    ),
    DataSet(
        "mrpc", "MRPC (Dolan and Brockett, 2005): pairs of sentences, paraphrases or not", "mrpc",
        ("mrpc",),
        licence="Microsoft Research: terms are accepted where it is downloaded, for research",
        page="https://www.microsoft.com/en-us/download/details.aspx?id=52398",
    ),
)  # fmt: skip
