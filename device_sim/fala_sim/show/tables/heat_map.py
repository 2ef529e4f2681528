"""Figures 2 and 3: every user's personal model on every user's test examples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fala import DataError
from fala_sim.metric.statistics import over_users, score
from fala_sim.records import Record
from fala_sim.show.tables.records import Records, replacements


@dataclass(frozen=True)
class HeatMap:
    """How much worse or better users fare with another's personal model than with their own.

    Attributes:
        data: The data set.
        method: By which the personal models were made.
        metric: ``"auc"``, ``"f1"`` or ``"accuracy"``.
        users: n names, of rows and of columns.
        matrix: Shape (n, n): row i, column j is the score of user i's model on user j's test
            examples, less the score of user j's own model on them. The diagonal is 0; NaN where
            a score is missing.
    """

    data: str
    method: str
    metric: str
    users: tuple[str, ...]
    matrix: NDArray[np.float64]


def heat_map(records: Records, data: str, method: str, metric: str = "auc") -> HeatMap:
    """Figure 2 (matching) or 3 (classification), averaged over seeds.

    The paper's figures: each row is one user's personal model, tested on all users.

    Args:
        records: What was run.
        data: A data set.
        method: A method.
        metric: ``"auc"``, ``"f1"`` or ``"accuracy"``.

    Raises:
        DataError: If no user's model was tested on another user.
    """
    runs = [
        record
        for record in replacements(records)
        if record["data"] == data and record["method"] == method and record.get("cross")
    ]
    users = tuple(sorted({record["user"] for record in runs}))
    if len(users) < 2:
        raise DataError(
            f"no models of {method} on {data} that were tested on another user: "
            "`fala-sim all` tests those of two users or more"
        )
    own = {(record["user"], record["seed"]): score(metric)(record) for record in runs}

    def difference(record: Record, tested: str) -> float | None:
        """A seed is a division of the data: a model is compared with the same division's own."""
        theirs = own.get((tested, record["seed"]))
        crossed = record["scores"] if tested == record["user"] else record["cross"].get(tested, {})
        ours = crossed.get(metric)
        return None if ours is None or theirs is None else ours - theirs

    matrix = np.full((len(users), len(users)), np.nan)
    for column, tested in enumerate(users):
        values = over_users(runs, partial(difference, tested=tested)).values
        for row, user in enumerate(users):
            matrix[row, column] = values.get(user, np.nan)
    return HeatMap(data, method, metric, users, matrix)
