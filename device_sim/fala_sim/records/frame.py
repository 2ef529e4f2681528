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

#: Objects whose keys are users, settings or stages: they stay one column each.
_WHOLE = ("cross", "settings", "stages")


def frame(results: Path | str, *kinds: RecordKind) -> pd.DataFrame:
    """The records of a folder as one pandas frame, one row per record.

    The columns are a record's fields; a field within a field is named with a dot, such as
    ``scores.auc`` or ``cost.total.forward_passes``. Lists stay in one cell each; logits are n lists
    of C numbers. ``settings``, ``cross`` (the scores on other users) and a cost's ``stages`` are
    objects in one cell. A field that a record does not have is missing (NaN).

    Columns computed from a record: ``cost.total.flops`` (forward and backward),
    ``cost.memory_growth`` (bytes by which the peak is above the start), ``flips.old.share`` and
    ``flips.vendor.share`` (negative flips as a share of the test examples), and beside each
    accuracy ``error_rate``, such as ``scores.error_rate`` (the percentage of examples that are
    decided otherwise than the user would).

    Args:
        results: The folder that ``fala-sim --results`` names.
        kinds: Kinds of record, such as ``"replacement"``; all where none is given.

    Returns:
        The frame. Its ``to_parquet`` writes it as Parquet, which takes pyarrow.

    Raises:
        fala.DataError: If there is no record, or one cannot be read; names it.
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
    """As ``frame``, but empty where there is no record.

    Raises:
        fala.DataError: If a record cannot be read; names it.
    """
    return framed(read_records(Path(results), *kinds))


def framed(records: Iterable[RecordContent]) -> pd.DataFrame:
    """Records as a frame; without records it has only the column ``kind``."""
    import pandas as pd  # late: a command that needs no frame starts without it

    # Text as Python strings: tables read it cell by cell, which Arrow does ten times slower.
    with pd.option_context("future.infer_string", False):
        # Copied, so that columns of a type are contiguous.
        return pd.DataFrame([flat(record) for record in records] or {"kind": []}).copy()


def joined(*frames: pd.DataFrame) -> pd.DataFrame:
    """The rows of several frames, renumbered."""
    import pandas as pd

    # Copied as in ``framed``: a wide frame in many pieces is slow.
    return pd.concat(frames, ignore_index=True).copy()


def exploded(runs: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row for each object of the lists in a column, its fields named ``column.field``."""
    import pandas as pd

    rows = runs.explode(column, ignore_index=True)
    fields = pd.DataFrame([flat({column: value}) for value in rows.pop(column)])
    return pd.concat([rows, fields], axis="columns")


def as_logits(recorded: ArrayLike) -> NDArray[np.float64]:
    """Logits of a record as an array (n, C)."""
    array = np.asarray(recorded, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else array


def flat(record: RecordContent) -> RecordContent:
    """A record with inner objects' fields flattened, named with a dot, and with computed fields."""
    fields: RecordContent = {}
    for name, value in record.items():
        _add(fields, name, value)
    if (flops := fields.get("cost.total.forward_flops")) is not None:
        fields["cost.total.flops"] = flops + fields["cost.total.backward_flops"]
    if peak := fields.get("cost.total.peak_memory"):  # 0 where the system does not report it
        fields["cost.memory_growth"] = max(0, peak - fields["cost.start_memory"])
    if test := fields.get("test"):
        shares = {name.removesuffix("negative") + "share": count / test
                  for name, count in fields.items() if name.endswith(".negative")}  # fmt: skip
        fields |= shares
    wrong = {name.removesuffix("accuracy") + "error_rate": error_rate(value)
             for name, value in fields.items() if name.endswith(".accuracy")}  # fmt: skip
    return fields | wrong


def _shaped(logits: object) -> object:
    """Logits in one shape for the whole column, as Parquet requires."""
    return as_logits(logits).tolist() if isinstance(logits, list) else logits


def _without_empty(value: object) -> object:
    """An object without empty objects, which Parquet cannot write; None for an empty one."""
    if not isinstance(value, Mapping):
        return value
    filled = {name: _without_empty(inner) for name, inner in value.items()}
    return {name: inner for name, inner in filled.items() if inner is not None} or None


def _add(fields: RecordContent, name: str, value: object) -> None:
    # A record's objects are dicts; asking for a Mapping takes four times as long.
    if isinstance(value, dict) and name.rpartition(".")[2] not in _WHOLE:
        for inner, inner_value in value.items():
            _add(fields, f"{name}.{inner}", inner_value)
    else:
        fields[name] = value
