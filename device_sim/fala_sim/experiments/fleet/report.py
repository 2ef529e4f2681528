"""Reports on a fleet's rows: quality over time, gains and losses, cost, and stopped releases."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined

from fala import DataError
from fala_sim.experiments.fleet import rows
from fala_sim.experiments.fleet.rows import DAYS, OFFERED, OUTCOMES
from fala_sim.experiments.fleet.run import chunks_of_devices

if TYPE_CHECKING:
    import pandas as pd

FleetFigures: TypeAlias = "dict[str, Any]"

#: Power of a working device in watts, and its source.
WATTS = 3.0
SOURCE = (
    "3.0 W: a whole Raspberry Pi 4 Model B in typical use, 600 mA at 5 V (Raspberry Pi's "
    "documentation, typical power requirements), times this machine's processor seconds"
)
#: The canary stops a release if more than this share of its devices refuses it.
HALT = 0.1
#: Loss of AUC from which a user counts as harmed.
HARM = 0.05
#: Share of the users for whom quality is lowest.
TAIL = 0.05
_PROJECTED, _CHUNK = 1_000_000, 1_000

#: Outcomes of a release on a device that it reached.
_DECIDED = [outcome for outcome in OUTCOMES if outcome not in ("not offered", "gone")]


def report(out: Path, watts: float = WATTS) -> FleetFigures:
    """Return the figures of the existing chunks.

    Args:
        out: Folder of the fleet.
        watts: Power of a working device, in watts.

    Raises:
        DataError: There are no chunks, or one cannot be read.
    """
    files = chunks_of_devices(out)
    try:
        fleet, about = rows.read(files)
    except DataError as error:
        raise DataError(f"{out}: {error}") from error
    return {
        "devices": len(fleet),
        "chunks": len(files),
        "bytes_a_row": sum(path.stat().st_size for path in files) / len(fleet),
        "labels": _spread(fleet["labels"]),
        "left": int((fleet["left"] != 255).sum()),
        "quality": [
            {
                "day": day,
                "auc": _mean(fleet[f"auc_{day}"]),
                "devices": int(fleet[f"auc_{day}"].count()),
            }
            for day in DAYS
        ],
        "releases": {name: _release(fleet, name, watts) for name in OFFERED},
        "broken": _broken(fleet),
        "watts": {"value": watts, "source": SOURCE if watts == WATTS else "as given"},
        "cost": _cost(fleet, about),
    }


def _reached(fleet: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the devices that a release reached, with its columns without their prefix."""
    prefix = f"{name}_"
    part = fleet.filter(regex=f"^{prefix}").rename(columns=lambda column: column[len(prefix) :])
    return part[part["outcome"].isin([OUTCOMES.index(outcome) for outcome in _DECIDED])]


def _release(fleet: pd.DataFrame, name: str, watts: float) -> FleetFigures:
    """Return the figures of one release on the devices that it reached."""
    runs = _reached(fleet, name)
    counts = runs["outcome"].value_counts()
    return {
        "offered": len(runs),
        "outcomes": {name: int(counts.get(OUTCOMES.index(name), 0)) for name in _DECIDED},
        "before": _mean(runs["before"]),
        "carried": _change(runs["before"], runs["after"]),
        "plain": _change(runs["before"], runs["vendor"]),
        "passes": _spread(runs["passes"]),
        "passes_in_all": int(runs["passes"].sum()),
        "seconds": _mean(runs["seconds"]),
        "watt_hours_in_all": float(runs["seconds"].sum() * watts / 3600),
        "killed": int(runs["killed"].sum()),
        "damaged_refused": int(runs["damaged"].sum()),
    }


def _change(before: pd.Series[float], after: pd.Series[float]) -> FleetFigures:
    """Return the change from one model's AUC to another's, over users."""
    change = (after - before).dropna()
    return {
        "auc": _mean(after),
        "better": _mean(change > 0),
        "worse": _mean(change < 0),
        "tail": _mean(change.nsmallest(max(1, round(TAIL * len(change))))),
    }


def _broken(fleet: pd.DataFrame) -> FleetFigures:
    """Return the effect of the broken release on copies, and how it was stopped."""
    copies = fleet[fleet["tried"] == 1]
    canary = _reached(fleet, "broken")
    refused = _mean(canary["outcome"] == OUTCOMES.index("refused"))
    return {
        "tried_on_a_copy": len(copies),
        "refused_there": _mean(copies["blind_refused"] == 1),
        "before": _mean(copies["blind_before"]),
        "plain": _change(copies["blind_before"], copies["blind_vendor"]),
        "taken_whatever_comes": _change(copies["blind_before"], copies["blind"]),
        "canary": len(canary),
        "canary_refused": refused,
        "halted": None if refused is None else refused > HALT,
        "harmed": int((canary["before"] - canary["after"] > HARM).sum()),
        "harmed_there": _mean(copies["blind_before"] - copies["blind"] > HARM),
        "of": len(fleet),
        "recalled": int(fleet["recalled"].sum()),
        "recalled_after": _mean(fleet["recalled_after"]),
        "recalled_before": _mean(fleet["broken_before"][fleet["recalled"] == 1]),
    }


def _cost(fleet: pd.DataFrame, about: list[dict[str, str]]) -> FleetFigures:
    start = fmean(float(chunk["start"]) for chunk in about)
    per_device = float(fleet["spent"].mean())
    total = _PROJECTED * per_device + math.ceil(_PROJECTED / _CHUNK) * start
    return {
        "seconds_a_device": per_device,
        "own_seconds_a_device": float(fleet["seconds"].mean()),
        "seconds_to_start_a_chunk": start,
        "projected_devices": _PROJECTED,
        "projected_core_hours": total / 3600,
    }


def _mean(values: pd.Series[Any]) -> float | None:
    """Return the mean of the values that are not missing, or the share of true values."""
    return float(values.mean()) if values.count() else None


def _spread(values: pd.Series[int]) -> FleetFigures:
    return {
        "mean": _mean(values),
        "median": float(values.median()) if len(values) else None,
        "most": int(values.max()) if len(values) else None,
    }


def in_words(figures: FleetFigures) -> list[str]:
    """Return the figures as lines of text, from the template ``report.txt``."""
    environment = Environment(
        loader=PackageLoader(__package__ or "", ""), undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["to"] = _formatted
    template = environment.get_template("report.txt")
    return template.render(**figures, halt=HALT, harm=HARM, tail=TAIL, chunk=_CHUNK).splitlines()


def _formatted(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
