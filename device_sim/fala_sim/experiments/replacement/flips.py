"""Flips: decisions that were right with the old personal model, and are wrong after a replacement.

The literature on updates calls them negative flips (Yan et al., CVPR 2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fala_sim.methods.quality import LabelPositions, flips
from fala_sim.methods.registry import WITH_WORDS
from fala_sim.methods.unfitted import OldWords
from fala_sim.records.frame import as_logits
from fala_sim.report.groups import FELT, having, of
from fala_sim.report.statistics import SPLIT

if TYPE_CHECKING:
    import pandas as pd

#: The title of the column, and its name in a frame of ``with_flips``.
TITLE, COLUMN = "right before, wrong now", "flipped"

#: The metrics that a user notices first, together with the flips.
FELT_WITH_FLIPS = {"error rate (%)": FELT["error rate (%)"], TITLE: COLUMN, **FELT}

ABOUT = (
    "Right before, wrong now: the percentage of test texts that the old personal model decides "
    "right and this model decides wrong. For FaLA and the new model alone, the old personal model "
    "also has lexical features if the records contain it; for every other method, it has none."
)


def with_flips(runs: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """Add ``flipped`` to runs: the percentage of test examples that were right and are now wrong.

    A record made on a device has its flips from that device's own old model (``flips.device``). If
    it has none, they are counted by the logits of the method ``old-words`` on the same examples.

    Args:
        runs: Replacements.
        records: Records of ``old-words``, if it was run.
    """
    same = [*SPLIT, "digests.data"]
    needed = having(of(records, "replacement"), *same, "truth", "logits")
    before = needed[needed["method"] == OldWords.name].dropna(subset=["truth", "logits"])
    columns = ["flips.device.share", "flips.old.share", "logits"]
    merged = having(runs, *same, *columns).merge(
        before.drop_duplicates(same)[[*same, "truth", "logits"]], "left", same,
        suffixes=("", "_before"),
    )  # fmt: skip
    shares = [
        _share(np.asarray(truth), logits, earlier)
        if method in WITH_WORDS and isinstance(logits, list) and isinstance(earlier, list)
        else np.nan
        for method, truth, logits, earlier in zip(
            merged["method"], merged["truth_before" if "truth" in runs else "truth"],
            merged["logits"], merged["logits_before"], strict=True,
        )
    ]  # fmt: skip
    counted = merged["flips.device.share"].astype(float).fillna(dict(enumerate(shares)))
    flipped = counted.fillna(merged["flips.old.share"].astype(float))
    return runs.assign(**{COLUMN: 100 * flipped.to_numpy()})


def _share(truth: LabelPositions, logits: ArrayLike, before: ArrayLike) -> float:
    """Return the share of examples that were right before and are wrong now."""
    turned = flips(as_logits(logits), as_logits(before), truth)
    return turned["negative"] / len(truth)
