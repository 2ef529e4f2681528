"""A table of numbers, with title, caption and notes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fala_sim.report.value import UserMean, number_text

if TYPE_CHECKING:
    import pandas as pd

Cell: TypeAlias = UserMean | str | float | int | None
TableRow: TypeAlias = Mapping[str, Cell]

#: The text of a cell without records.
NOT_RUN = "not run"

#: The text of an empty cell.
EMPTY = "–"

#: Prefix of columns and rows with a paper's own numbers.
PAPER = "paper:"


@dataclass(frozen=True)
class Table:
    """A table of numbers.

    Attributes:
        cells: The numbers; columns are named with their units, an empty cell is None.
        data: Its data and backbones.
        notes: Remarks on single cells, one sentence each.
        measured: When and where, for a table with costs.
        name: For files, such as ``"table-2"``.
        title: One line.
        about: What is shown, and what differs from the paper.
    """

    cells: pd.DataFrame
    data: str
    notes: tuple[str, ...] = ()
    measured: str = ""
    name: str = ""
    title: str = ""
    about: str = ""

    @classmethod
    def of(
        cls, rows: Sequence[TableRow], data: str, notes: Sequence[str] = (), measured: str = ""
    ) -> Table:
        """A table of rows by column; ``report.registry.table`` adds its name, title and caption.

        NaN is an empty cell. A paper's column without any number is left out.
        """
        import pandas as pd  # late: the command line's help needs no pandas

        cells = pd.DataFrame([{name: _plain(cell) for name, cell in row.items()} for row in rows],
                             dtype=object)  # fmt: skip
        cells = cells.where(cells.notna(), None)
        theirs = cells.loc[:, [str(name).startswith(PAPER) for name in cells]]
        empty = theirs.columns[theirs.isna().all()]
        return cls(cells.drop(columns=empty), data, tuple(notes), measured)

    @property
    def caption(self) -> str:
        """The data, and what the table shows."""
        return " ".join(filter(None, (self.data, self.about, self.measured)))

    @property
    def header(self) -> list[str]:
        """The columns' names."""
        return self.cells.columns.tolist()

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """The cells by row."""
        return list(self.cells.itertuples(index=False, name=None))

    def text(self) -> str:
        """For a terminal: numbers aligned right, words left."""
        parts = [self.title, textwrap.fill(self.caption, 100), "", self._drawn("simple")]
        parts += [textwrap.fill(note, 100, subsequent_indent="  ") for note in self.notes]
        return "\n".join(parts)

    def markdown(self) -> str:
        """For a README: a pipe table under its title, with caption and notes."""
        parts = [f"**{self.title}.** {self.caption}", "", self._drawn("pipe")]
        if self.notes:
            parts += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(parts)

    def _drawn(self, form: str) -> str:
        cells = self.cells.map(cell_text)
        if form == "pipe":
            cells = cells.map(_escaped).rename(columns=_escaped)
        sides = ["right" if self.is_numeric(name) else "left" for name in self.header]
        return str(
            cells.to_markdown(index=False, tablefmt=form, disable_numparse=True, colalign=sides)
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a mean over users is an object, other cells are unchanged."""
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "header": self.header,
            "rows": [
                [asdict(cell) if isinstance(cell, UserMean) else cell for cell in row]
                for row in self.rows
            ],
            "notes": list(self.notes),
        }

    def is_numeric(self, column: str) -> bool:
        """Whether a column contains a number."""
        return any(isinstance(cell, UserMean | float | int) for cell in self.cells[column])


def _plain(cell: object) -> object:
    return cell.item() if isinstance(cell, np.generic) else cell


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def cell_text(cell: Cell) -> str:
    """A cell as text, in a terminal and in Markdown."""
    if cell is None:
        return EMPTY
    if isinstance(cell, float | int):
        return number_text(cell)
    return str(cell)
