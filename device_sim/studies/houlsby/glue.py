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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fala import DataError, Pair
from fala_sim.data.conversion import Conversion, ConvertedRow, folded
from fala_sim.data.left_out import LeftOut
from fala_sim.data.tables import read_lines

_VALIDATION = 0.1  # share of MRPC's training pairs, which is GLUE's own share


@dataclass(frozen=True)
class PublishedBenchmark:
    """A benchmark, as its publisher's files have it.

    Attributes:
        files: Names of the files: training, validation if there is such a file, and test.
        label: Column of the label.
        columns: Number of columns; those from the fourth on are the text, or two texts.
        page: Address of the publisher's page, with the terms.
    """

    files: tuple[str, ...]
    label: int
    columns: int
    page: str

    def find(self, folder: Path) -> list[Path]:
        """Return the files in a folder.

        Raises:
            DataError: A file is missing; the error says where it is published.
        """
        paths = [folder / name for name in self.files]
        for path in paths:
            if not path.is_file():
                raise DataError(
                    f"{path}: no such file; get it from its publisher ({self.page}), or name the "
                    "folder of your data sets with --data-dir or FALA_DATA"
                )
        return paths

    def convert(self, paths: Sequence[Path]) -> Conversion:
        """Make rows from the files.

        Test texts are in no other rows, and validation texts in no public rows.

        Raises:
            DataError: A file cannot be read, or a split is empty.
        """
        left_out = LeftOut()
        public, *others, test = (self._read(path, left_out) for path in paths)
        if others:
            (validation,) = others
        else:
            size = round(_VALIDATION * len(public))
            drawn = set(random.Random("validation 0").sample(range(len(public)), size))
            validation = [row for position, row in enumerate(public) if position in drawn]
            public = [row for position, row in enumerate(public) if position not in drawn]
        judged: set[str] = set()
        parts: dict[str, list[ConvertedRow]] = {}
        # Test rows come first, so that a text in several splits stays in the most important one.
        for split, part in (("test", test), ("train", validation), ("public", public)):
            user = "public" if split == "public" else "glue"
            rows = [ConvertedRow(user, split, text, label) for text, label in part]
            parts[split] = [row for row in rows if folded(row.judged) not in judged]
            repeated = len(rows) - len(parts[split])
            left_out.add("rows of texts that are in another split", count=repeated)
            judged.update(folded(row.judged) for row in rows)
        if not all(parts.values()):
            raise DataError("a benchmark needs rows for training, validation and test")
        return Conversion([*parts["public"], *parts["train"], *parts["test"]], left_out)

    def _read(self, path: Path, left_out: LeftOut) -> list[tuple[str, int]]:
        """Return a file's rows, each a text (or ``fala.Pair``) with its label."""
        rows: list[tuple[str, int]] = []
        for number, line in enumerate(read_lines(path), start=1):
            cells = line.split("\t")
            label = cells[self.label] if self.label < len(cells) else ""
            if not line.strip() or (number == 1 and label not in ("0", "1")):
                continue  # an empty line, or a header, which some copies have
            texts = [cell.strip() for cell in cells[3:]]
            if len(cells) != self.columns or label not in ("0", "1") or not all(texts):
                left_out.add(f"damaged lines of {path.name}", f"line {number}")
                continue
            rows.append((Pair(*texts) if len(texts) > 1 else texts[0], int(label)))
        return rows


#: The benchmarks by name, which is also the name of their folder.
SOURCES = {
    "cola": PublishedBenchmark(
        ("train.tsv", "val.tsv", "dev.tsv"), 1, 4, "https://nyu-mll.github.io/CoLA/"
    ),
    "mrpc": PublishedBenchmark(
        ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"), 0, 5,
        "https://www.microsoft.com/en-us/download/details.aspx?id=52398",
    ),
}  # fmt: skip
