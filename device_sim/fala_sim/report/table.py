"""A table of numbers, with a title, a caption and notes."""

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
        cells: The numbers. Columns are named with their units; an empty cell is None.
        data: Description of the data and backbones.
        notes: Remarks on single cells, one sentence each.
        measured: When and on which machine costs were measured, for a table with costs.
        name: Name used for files, such as ``"table-2"``.
        title: Title in one line.
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
        """Return a table of rows; ``report.registry.table`` adds its name, title and caption.

        NaN becomes an empty cell. A column of a paper's numbers is left out if it has none.
        """
        import pandas as pd  # late, because the command line's help needs no pandas

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
        """The names of the columns."""
        return self.cells.columns.tolist()

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """The cells by row."""
        return list(self.cells.itertuples(index=False, name=None))

    def text(self) -> str:
        """Return the table for a terminal, with numbers aligned right and words left."""
        parts = [self.title, textwrap.fill(self.caption, 100), "", self._drawn("simple")]
        parts += [textwrap.fill(note, 100, subsequent_indent="  ") for note in self.notes]
        return "\n".join(parts)

    def markdown(self) -> str:
        """Return a pipe table for a README, under its title, with caption and notes."""
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
        """Return the table for JSON, in which a mean over users is an object."""
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
        """Return whether a column contains a number."""
        return any(isinstance(cell, UserMean | float | int) for cell in self.cells[column])


def _plain(cell: object) -> object:
    return cell.item() if isinstance(cell, np.generic) else cell


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def cell_text(cell: Cell) -> str:
    """Return a cell as text, for a terminal and for Markdown."""
    if cell is None:
        return EMPTY
    if isinstance(cell, float | int):
        return number_text(cell)
    return str(cell)
