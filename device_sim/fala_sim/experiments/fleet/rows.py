"""One row a device, in Parquet: what it decided, how well it answers, and what that cost."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fala import DataError
from fala_sim.convert.output import save

if TYPE_CHECKING:
    import pandas as pd

#: What became of a release on a device, by its number in a row.
OUTCOMES = (
    "not offered", "personal", "calibrated", "vendor", "refused", "gone",
)  # fmt: skip

#: The releases after the first, in their order.
OFFERED = ("transformer", "broken", "retrained")

#: When quality is measured, in days since the first release.
DAYS = (0, 30, 60, 90)

_PER_RELEASE = {
    "day": "u1",  # of the installation, or of the refusal
    "outcome": "u1",  # of ``OUTCOMES``
    "damaged": "u1",  # downloads that arrived damaged, and were refused
    "killed": "u1",  # times that its process was killed on the way
    "passes": "u2",  # forward passes, those of killed processes included
    "seconds": "f4",  # processor time of all of it
    "before": "f4",  # AUC on held-out posts of the model that it replaced
    "after": "f4",  # and of the one that answers then
    "vendor": "f4",  # and of the vendor's own new model, without anything personal
}

#: The columns and their types; an AUC that nobody knows is NaN.
COLUMNS: dict[str, str] = {
    "device": "i8",
    "kind": "u1",  # of reader
    "budget": "u1",  # forward passes that a replacement may take
    "wave": "u1",  # of every roll-out
    "left": "u1",  # the day on which its user left; 255: stayed
    "labels": "u2",  # that its user gave, in all
    **{f"{name}_{column}": kind for name in OFFERED for column, kind in _PER_RELEASE.items()},
    **{f"auc_{day}": "f4" for day in DAYS},
    # What the broken release would have done, on the devices that tried it on a copy.
    "tried": "u1",
    "blind_refused": "u1",  # whether the device's own check refused it there
    "blind_vendor": "f4",  # AUC of that release's own model
    "blind": "f4",  # AUC of a device that takes whatever comes
    "blind_before": "f4",  # AUC of the same one before
    # The broken release taken back, where the device had not refused it.
    "recalled": "u1",
    "recalled_after": "f4",  # AUC afterwards
    "learned": "f4",  # seconds of processor time for labels
    "learned_passes": "u2",  # forward passes for labels
    "seconds": "f4",  # of all that was the device's own work
    "spent": "f4",  # of everything, the simulation's measuring included
}


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a frame of the columns' types; a number that a row lacks is 0, or NaN."""
    import pandas as pd  # late: the command line's help needs no pandas

    counts = {name: 0 for name, kind in COLUMNS.items() if kind != "f4"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).fillna(counts).astype(COLUMNS)


def write(path: Path, rows: pd.DataFrame, about: Mapping[str, str]) -> None:
    """Write a chunk's rows, whole or not at all.

    Args:
        path: Of the Parquet file.
        rows: As ``frame_of`` makes them.
        about: What the file says of itself.

    Raises:
        DataError: It cannot be written, or pyarrow is not installed.
    """
    library = arrow()
    # Without what pandas notes of its types, which is larger than many a chunk's rows.
    table = library.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(about)
    content = io.BytesIO()
    library.parquet.write_table(table, content, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    save([content.getvalue()], path)


def count(path: Path) -> int:
    """How many rows a file has; 0 where it cannot be read."""
    library = arrow()
    try:
        return int(library.parquet.read_metadata(path).num_rows)
    except (OSError, library.ArrowException):
        return 0


def read(paths: Iterable[Path]) -> tuple[pd.DataFrame, list[dict[str, str]]]:
    """The rows of some chunks, figures in double precision, and what each file says of itself.

    Raises:
        DataError: One cannot be read; names it. Or there is none.
    """
    library = arrow()
    tables, about = [], []
    for path in paths:
        try:
            table = library.parquet.read_table(path)
        except (OSError, library.ArrowException) as error:
            why = f"{path}: cannot be read: {error}; delete it to run its devices again"
            raise DataError(why) from error
        metadata = table.schema.metadata or {}
        tables.append(table)
        about.append({key.decode(): value.decode() for key, value in metadata.items()})
    if not tables:
        raise DataError("no devices were run there yet")
    rows: pd.DataFrame = library.concat_tables(tables).to_pandas()
    return rows.astype({name: "f8" for name, kind in COLUMNS.items() if kind == "f4"}), about


def arrow() -> ModuleType:
    """The Parquet library.

    Raises:
        DataError: It is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            "a fleet's rows are Parquet: install fala-sdk with the extra [cluster]"
        ) from error
    library: ModuleType = pyarrow
    return library
