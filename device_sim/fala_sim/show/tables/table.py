"""A table: numbers in rows, and what they are."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from fala_sim.metric.value import Value, number

if TYPE_CHECKING:
    import pandas as pd

Cell: TypeAlias = Value | str | float | int | None

#: Stands in a cell whose records are not there.
NOT_RUN = "not run"

#: Stands in a cell that has nothing to say.
EMPTY = "–"


@dataclass(frozen=True)
class Table:
    """Rows of numbers with their names.

    Attributes:
        name: For files and the command line, such as ``"table-2"``.
        title: One line.
        caption: What is shown, on which data and backbones, and what differs from the paper.
        header: Names of the columns, with units.
        rows: Each as long as the header.
        notes: What a reader must know of single cells, one sentence each.

    Raises:
        ValueError: If a row is not as long as the header.
    """

    name: str
    title: str
    caption: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"{self.name}: a row of {len(row)} cells under {len(self.header)} columns"
                )

    def cells(self) -> list[tuple[str, ...]]:
        """The rows as text."""
        return [tuple(cell_text(cell) for cell in row) for row in self.rows]

    def frame(self) -> pd.DataFrame:
        """The cells as a pandas frame of text, as a reader sees them."""
        import pandas as pd  # late: the command line's help needs no pandas

        return pd.DataFrame(self.cells(), columns=list(self.header))

    def text(self) -> str:
        """For a terminal: numbers aligned to the right, words to the left."""
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
        columns = range(len(self.header))
        cells = self.frame()
        if form == "pipe":
            cells = cells.map(_escaped).rename(columns=_escaped)
        return str(
            cells.to_markdown(
                index=False,
                tablefmt=form,
                disable_numparse=True,
                colalign=["right" if self._numeric(column) else "left" for column in columns],
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON: a mean over users is an object, other cells are as they are."""
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "header": list(self.header),
            "rows": [
                [asdict(cell) if isinstance(cell, Value) else cell for cell in row]
                for row in self.rows
            ],
            "notes": list(self.notes),
        }

    def _numeric(self, column: int) -> bool:
        return any(isinstance(row[column], Value | float | int) for row in self.rows)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def cell_text(cell: Cell) -> str:
    """A cell as a reader sees it, in a terminal, in markdown and in HTML."""
    if cell is None:
        return EMPTY
    if isinstance(cell, float | int):
        return number(cell)
    return str(cell)
