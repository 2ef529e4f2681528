"""Records as one pandas frame, for notebooks and for whatever reads Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fala import DataError
from fala_sim.records import KINDS, Kind, Record, read_records

if TYPE_CHECKING:
    import pandas as pd

#: Objects whose keys are users or settings: they stay one column each.
_WHOLE = ("cross", "blends", "settings")


def frame(results: Path | str, *kinds: Kind) -> pd.DataFrame:
    """The records of a folder as one pandas frame, a row a record.

    The columns are a record's fields; a field within a field is named with a dot, such as
    ``scores.auc`` or ``cost.total.forward_passes``. Lists stay in one cell each; logits are n lists
    of C numbers. ``settings``, ``blends`` and ``cross`` (the scores on other users) are objects in
    one cell. A field that a record does not have is missing (NaN).

    Args:
        results: The folder that ``fala-sim --results`` names.
        kinds: Kinds of record, such as ``"replacement"``; all where none is given.

    Returns:
        The frame. Its ``to_parquet`` writes it as Parquet, which takes pyarrow.

    Raises:
        fala.DataError: If there is no record, or one cannot be read; names it.
    """
    import pandas as pd  # late: a command that needs no frame starts without it

    folder = Path(results)
    records = [flat(record) for kind in kinds or KINDS for record in read_records(folder, kind)]
    if not records:
        raise DataError(f"no records of {', '.join(kinds) or 'any kind'} in {str(folder)!r}")
    return pd.DataFrame(records)


def flat(record: Record) -> Record:
    """A record whose inner objects' fields are its own, named with a dot."""
    fields: Record = {}
    for name, value in record.items():
        _add(fields, name, value)
    return fields


def _add(fields: Record, name: str, value: object) -> None:
    if isinstance(value, Mapping) and name not in _WHOLE:
        for inner, inner_value in value.items():
            _add(fields, f"{name}.{inner}", inner_value)
    elif name.endswith("logits") and isinstance(value, list) and not isinstance(value[0], list):
        fields[name] = [[logit] for logit in value]  # one shape for a column, as Parquet wants
    else:
        fields[name] = value
