"""Records as one pandas frame, from which tables and plots are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala import DataError
from fala_export.people.score import error_rate
from fala_sim.records.store import RecordContent, RecordKind, read_records

if TYPE_CHECKING:
    import pandas as pd

#: Objects whose keys are users, settings or stages, so each of them stays one column.
_WHOLE = ("cross", "settings", "stages")


def frame(results: Path | str, *kinds: RecordKind) -> pd.DataFrame:
    """Return the records of a folder as one pandas frame, with one row per record.

    The columns are a record's fields. A field within a field is named with a dot, such as
    ``scores.auc`` or ``cost.total.forward_passes``. Lists stay in one cell each; logits are n lists
    of C numbers. ``settings``, ``cross`` (the scores on other users) and a cost's ``stages`` are
    objects in one cell. A field that a record does not have is missing (NaN).

    Columns computed from a record: ``cost.total.flops`` (forward and backward),
    ``cost.memory_growth`` (the bytes by which the peak exceeds the start), ``flips.old.share`` and
    ``flips.vendor.share`` (negative flips as a share of the test examples), and ``error_rate``
    beside each accuracy, such as ``scores.error_rate`` (the percentage of examples on which the
    model disagrees with the user).

    Args:
        results: The folder that ``fala-sim --results`` names.
        kinds: Kinds of record, such as ``"replacement"``; all kinds if none is given.

    Returns:
        The frame. Its method ``to_parquet`` writes it as Parquet, which requires pyarrow.

    Raises:
        fala.DataError: There is no record, or a record, which the error names, cannot be read.
    """
    records = read_frame(results, *kinds)
    if records.empty:
        raise DataError(f"no records of {', '.join(kinds) or 'any kind'} in {str(results)!r}")
    logits = records.filter(regex="logits$")
    objects = records.filter(regex=rf"(^|\.)({'|'.join(_WHOLE)})$")
    return records.assign(
        **{str(name): logits[name].map(_shaped) for name in logits},
        **{str(name): objects[name].map(_without_empty) for name in objects},
    )


def read_frame(results: Path | str, *kinds: RecordKind) -> pd.DataFrame:
    """Return the frame as ``frame`` does, but an empty one if there is no record.

    Raises:
        fala.DataError: A record, which the error names, cannot be read.
    """
    return framed(read_records(Path(results), *kinds))


def framed(records: Iterable[RecordContent]) -> pd.DataFrame:
    """Return records as a frame, which has only the column ``kind`` if there are no records."""
    import pandas as pd  # late, because a command that needs no frame starts faster without it

    # Text stays Python strings, because tables read it cell by cell and Arrow does that ten times
    # more slowly.
    with pd.option_context("future.infer_string", False):
        # The copy makes columns of the same type contiguous.
        return pd.DataFrame([flat(record) for record in records] or {"kind": []}).copy()


def joined(*frames: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of several frames, renumbered."""
    import pandas as pd

    # The copy is made as in ``framed``, because a wide frame in many pieces is slow.
    return pd.concat(frames, ignore_index=True).copy()


def exploded(runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a row for each object of the lists in a column, with fields named ``column.field``."""
    import pandas as pd

    rows = runs.explode(column, ignore_index=True)
    fields = pd.DataFrame([flat({column: value}) for value in rows.pop(column)])
    return pd.concat([rows, fields], axis="columns")


def as_logits(recorded: ArrayLike) -> NDArray[np.float64]:
    """Return the logits of a record as an array (n, C)."""
    array = np.asarray(recorded, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else array


def flat(record: RecordContent) -> RecordContent:
    """Return a record with nested fields flattened and computed fields added."""
    fields: RecordContent = {}
    for name, value in record.items():
        _add(fields, name, value)
    if (flops := fields.get("cost.total.forward_flops")) is not None:
        fields["cost.total.flops"] = flops + fields["cost.total.backward_flops"]
    if peak := fields.get("cost.total.peak_memory"):  # 0 if the system does not report it
        fields["cost.memory_growth"] = max(0, peak - fields["cost.start_memory"])
    if test := fields.get("test"):
        shares = {name.removesuffix("negative") + "share": count / test
                  for name, count in fields.items() if name.endswith(".negative")}  # fmt: skip
        fields |= shares
    wrong = {name.removesuffix("accuracy") + "error_rate": error_rate(value)
             for name, value in fields.items() if name.endswith(".accuracy")}  # fmt: skip
    return fields | wrong


def _shaped(logits: object) -> object:
    """Return logits in one shape for the whole column, as Parquet requires."""
    return as_logits(logits).tolist() if isinstance(logits, list) else logits


def _without_empty(value: object) -> object:
    """Return an object without empty objects, which Parquet cannot write; None if it is empty."""
    if not isinstance(value, Mapping):
        return value
    filled = {name: _without_empty(inner) for name, inner in value.items()}
    return {name: inner for name, inner in filled.items() if inner is not None} or None


def _add(fields: RecordContent, name: str, value: object) -> None:
    # The objects of a record are dicts; a check for a Mapping takes four times as long.
    if isinstance(value, dict) and name.rpartition(".")[2] not in _WHOLE:
        for inner, inner_value in value.items():
            _add(fields, f"{name}.{inner}", inner_value)
    else:
        fields[name] = value
