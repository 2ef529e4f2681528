"""The rows of a fleet in Parquet, one per device, with its decisions, quality and cost."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fala import DataError
from fala_sim.data.output import save

if TYPE_CHECKING:
    import pandas as pd

#: Outcomes of a release on a device; a row has the outcome's number.
OUTCOMES = (
    "not offered", "personal", "calibrated", "vendor", "refused", "gone",
)  # fmt: skip

#: The releases after the first, in their order.
OFFERED = ("transformer", "broken", "retrained")

#: Days since the first release on which quality is measured.
DAYS = (0, 30, 60, 90)

_PER_RELEASE = {
    "day": "u1",  # day of the installation, or of the refusal
    "outcome": "u1",  # number of the outcome in ``OUTCOMES``
    "damaged": "u1",  # number of downloads that arrived damaged, and were refused
    "killed": "u1",  # number of times that its process was killed
    "passes": "u2",  # number of forward passes, including those of killed processes
    "seconds": "f4",  # processor time in seconds
    "before": "f4",  # AUC on held-out posts of the replaced model
    "after": "f4",  # AUC of the active model afterwards
    "vendor": "f4",  # AUC of the vendor's new model
}

#: The columns and their types; an unknown AUC is NaN.
COLUMNS: dict[str, str] = {
    "device": "i8",
    "kind": "u1",  # kind of the user
    "budget": "u1",  # number of forward passes that a replacement may take
    "wave": "u1",  # wave in every roll-out
    "left": "u1",  # day on which its user left; 255 if the user stayed
    "labels": "u2",  # total number of its user's labels
    **{f"{name}_{column}": kind for name in OFFERED for column, kind in _PER_RELEASE.items()},
    **{f"auc_{day}": "f4" for day in DAYS},
    # The broken release on a copy of the device, if it was tried.
    "tried": "u1",
    "blind_refused": "u1",  # whether the device's own check refused the release on the copy
    "blind_vendor": "f4",  # AUC of that release's vendor model
    "blind": "f4",  # AUC after installing it in any case
    "blind_before": "f4",  # AUC before
    # The roll-back of the broken release, if the device had not refused it.
    "recalled": "u1",
    "recalled_after": "f4",  # AUC afterwards
    "learned": "f4",  # processor time in seconds for labels
    "learned_passes": "u2",  # number of forward passes for labels
    "seconds": "f4",  # processor time in seconds of the device's own work
    "spent": "f4",  # total processor time in seconds, including the simulation's measurements
}


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a frame with the columns' types.

    A missing number is 0, and a missing AUC or time is NaN.
    """
    import pandas as pd  # late, because the command line's help needs no pandas

    counts = {name: 0 for name, kind in COLUMNS.items() if kind != "f4"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).fillna(counts).astype(COLUMNS)


def write_fleet(path: Path, rows: pd.DataFrame, about: Mapping[str, str]) -> None:
    """Write a chunk's rows, whole or not at all.

    Args:
        path: Path of the Parquet file.
        rows: Rows that ``frame_of`` returned.
        about: The file's metadata.

    Raises:
        DataError: The file cannot be written, or pyarrow is not installed.
    """
    library = arrow()
    # Pandas' metadata is left out, because it is larger than the rows of a small chunk.
    table = library.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(about)
    content = io.BytesIO()
    library.parquet.write_table(table, content, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    save([content.getvalue()], path)


def count_devices(path: Path) -> int:
    """Return the number of rows in a file; 0 if it cannot be read."""
    library = arrow()
    try:
        return int(library.parquet.read_metadata(path).num_rows)
    except (OSError, library.ArrowException):
        return 0


def read(paths: Iterable[Path]) -> tuple[pd.DataFrame, list[dict[str, str]]]:
    """Return the rows of some chunks, with figures in double precision, and each file's metadata.

    Raises:
        DataError: A file cannot be read, or there are no files.
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
        raise DataError("no devices have been run there yet")
    rows: pd.DataFrame = library.concat_tables(tables).to_pandas()
    return rows.astype({name: "f8" for name, kind in COLUMNS.items() if kind == "f4"}), about


def arrow() -> ModuleType:
    """Return the Parquet library.

    Raises:
        DataError: The library is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            "a fleet's rows are Parquet files, which need pyarrow: install fala-sdk with the "
            "extra [cluster]"
        ) from error
    library: ModuleType = pyarrow
    return library
