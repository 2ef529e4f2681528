"""What a fleet's rows say: quality over time, who is better off, what it costs, what stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala import DataError
from fala_sim.experiments.fleet import rows
from fala_sim.experiments.fleet.rows import DAYS, OFFERED, OUTCOMES
from fala_sim.experiments.fleet.run import chunks

Columns: TypeAlias = "Mapping[str, NDArray[Any]]"
Figures: TypeAlias = "dict[str, Any]"

#: What a device draws while it works, in watts, and who says so.
WATTS = 3.0
SOURCE = (
    "3.0 W: a whole Raspberry Pi 4 Model B in typical use, 600 mA at 5 V (Raspberry Pi's "
    "documentation, typical power requirements), times this machine's processor seconds"
)
#: The canary stops a release that more of its devices refuse than this.
HALT = 0.1
#: AUC that a user must have lost to count as harmed.
HARM = 0.05
#: Of all users those who fared worst.
TAIL = 0.05
_PROJECTED, _CHUNK = 1_000_000, 1_000


def report(out: Path, watts: float = WATTS) -> Figures:
    """The figures of the chunks that are there.

    Args:
        out: The fleet's folder.
        watts: What a device draws while it works.

    Raises:
        DataError: There is none, or one cannot be read.
    """
    try:
        columns, about = rows.read(chunks(out))
    except DataError as error:
        raise DataError(f"{out}: {error}") from error
    count = len(columns["device"])
    size = sum(path.stat().st_size for path in chunks(out))
    return {
        "devices": count,
        "chunks": len(about),
        "bytes_a_row": size / count,
        "labels": _spread(columns["labels"]),
        "left": int((columns["left"] != 255).sum()),
        "quality": [{"day": day, **_mean(columns[f"auc_{day}"])} for day in DAYS],
        "releases": {name: _release(columns, name, watts) for name in OFFERED},
        "broken": _broken(columns),
        "watts": {"value": watts, "source": SOURCE if watts == WATTS else "as given"},
        "cost": _cost(columns, about),
    }


def _release(columns: Columns, name: str, watts: float) -> Figures:
    """One release where it was really rolled out."""
    own = {key: columns[f"{name}_{key}"] for key in ("before", "after", "vendor", "passes",
           "seconds", "outcome", "killed", "damaged")}  # fmt: skip
    there = ~np.isin(own["outcome"], [OUTCOMES.index(one) for one in ("not offered", "gone")])
    count = int(there.sum())
    seconds = own["seconds"][there].astype(np.float64)
    return {
        "offered": count,
        "outcomes": {
            one: int((own["outcome"][there] == number).sum())
            for number, one in enumerate(OUTCOMES)
            if one not in ("not offered", "gone")
        },
        "before": _mean(own["before"][there])["auc"],
        "carried": _change(own["before"][there], own["after"][there]),
        "plain": _change(own["before"][there], own["vendor"][there]),
        "passes": _spread(own["passes"][there]),
        "passes_in_all": int(own["passes"][there].sum()),
        "seconds": _mean(seconds)["auc"],
        "watt_hours_in_all": float(seconds[~np.isnan(seconds)].sum() * watts / 3600),
        "killed": int(own["killed"][there].sum()),
        "damaged_refused": int(own["damaged"][there].sum()),
    }


def _change(before: NDArray[Any], after: NDArray[Any]) -> Figures:
    """From one model's AUC to another's, user by user."""
    change = (after - before)[~np.isnan(after - before)].astype(np.float64)
    if not len(change):
        return {"auc": None, "better": None, "worse": None, "tail": None}
    worst = np.sort(change)[: max(1, round(TAIL * len(change)))]
    return {
        "auc": _mean(after)["auc"],
        "better": float((change > 0).mean()),
        "worse": float((change < 0).mean()),
        "tail": float(worst.mean()),
    }


def _broken(columns: Columns) -> Figures:
    """What the broken release would have done, and what stopped it."""
    tried = columns["tried"] == 1
    outcome = columns["broken_outcome"]
    reached = ~np.isin(outcome, [OUTCOMES.index(one) for one in ("not offered", "gone")])
    refused = reached & (outcome == OUTCOMES.index("refused"))
    share = float(refused.sum() / reached.sum()) if reached.any() else None
    before, after = columns["blind_before"][tried], columns["broken_after"]
    return {
        "tried_on_a_copy": int(tried.sum()),
        "refused_there": _share(columns["blind_refused"][tried] == 1),
        "before": _mean(before)["auc"],
        "plain": _change(before, columns["blind_vendor"][tried]),
        "taken_whatever_comes": _change(before, columns["blind"][tried]),
        "canary": int(reached.sum()),
        "canary_refused": share,
        "halted": None if share is None else share > HALT,
        "harmed": int((reached & (columns["broken_before"] - after > HARM)).sum()),
        "harmed_there": _share(before - columns["blind"][tried] > HARM),
        "of": len(outcome),
        "recalled": int(columns["recalled"].sum()),
        "recalled_after": _mean(columns["recalled_after"])["auc"],
        "recalled_before": _mean(columns["broken_before"][columns["recalled"] == 1])["auc"],
    }


def _cost(columns: Columns, about: list[dict[str, str]]) -> Figures:
    spent = columns["spent"].astype(np.float64)
    start = float(np.mean([float(one["start"]) for one in about]))
    each = float(spent.mean())
    total = _PROJECTED * each + math.ceil(_PROJECTED / _CHUNK) * start
    return {
        "seconds_a_device": each,
        "own_seconds_a_device": float(columns["seconds"].astype(np.float64).mean()),
        "seconds_to_start_a_chunk": start,
        "projected_devices": _PROJECTED,
        "projected_core_hours": total / 3600,
    }


def _mean(values: NDArray[Any]) -> Figures:
    known = values[~np.isnan(values)].astype(np.float64)
    return {"auc": float(known.mean()) if len(known) else None, "devices": len(known)}


def _share(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _spread(values: NDArray[Any]) -> Figures:
    if not len(values):
        return {"mean": None, "median": None, "most": None}
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "most": int(values.max()),
    }


def told(found: Figures) -> list[str]:
    """The figures as lines for people."""
    lines = [
        f"{found['devices']:,} devices, {found['left']:,} of whose users left; "
        f"{found['labels']['mean']:.0f} labels each (median {found['labels']['median']:.0f}, at "
        f"most {found['labels']['most']}); {found['bytes_a_row']:.0f} bytes a row on the disk.",
        "Quality (mean AUC on posts that the user never labelled) over time: "
        + ", ".join(f"day {one['day']}: {_number(one['auc'])}" for one in found["quality"])
        + ".",
    ]
    for name, one in found["releases"].items():
        if name == "broken":
            continue
        outcomes = ", ".join(f"{count:,} {word}" for word, count in one["outcomes"].items())
        lines += [
            "",
            f"Release {name!r}: reached {one['offered']:,} devices ({outcomes}).",
            f"  AUC {_number(one['before'])} before; {_changed(one['carried'])} carried over; "
            f"{_changed(one['plain'])} by the vendor's own model alone.",
            f"  Cost: {one['passes_in_all']:,} forward passes "
            f"({_number(one['passes']['mean'])} a device), {_number(one['seconds'])} processor "
            "seconds a device, "
            f"{one['watt_hours_in_all']:.3g} Wh for the fleet.",
            f"  Stopped: {one['damaged_refused']:,} damaged downloads, all refused; "
            f"{one['killed']:,} processes killed on the way, whose devices all went on.",
        ]
    bad = found["broken"]
    lines += [
        "",
        f"Release 'broken' (its head was fitted to labels the wrong way round), on copies of "
        f"{bad['tried_on_a_copy']:,} devices: AUC {_number(bad['before'])} before; "
        f"{_changed(bad['plain'])} by its own model; {_changed(bad['taken_whatever_comes'])} on a "
        "device that takes whatever comes.",
        f"  The device's own check refused it on {_percent(bad['refused_there'])} of the copies. "
        f"Of the canary's {bad['canary']:,} devices {_percent(bad['canary_refused'])} refused it"
        + _halted(bad),
        "",
        f"Energy at {found['watts']['value']:g} W ({found['watts']['source']}).",
        _projected(found["cost"]),
    ]
    return lines


def _halted(bad: Figures) -> str:
    if bad["halted"] is None:
        return "."
    if bad["halted"]:
        return (
            f", more than {HALT:.0%}: the roll-out ended there, with {bad['harmed']:,} of "
            f"{bad['of']:,} devices harmed (by more than {HARM:g}); devices that take "
            f"whatever comes would be harmed on {_percent(bad['harmed_there'])} of all. "
            f"{bad['recalled']:,} rolled back to AUC {_number(bad['recalled_after'])} "
            f"({_number(bad['recalled_before'])} before it)."
        )
    return f", no more than {HALT:.0%}: NOTHING would have stopped it after the canary."


def _projected(cost: Figures) -> str:
    return (
        f"Simulating took {cost['seconds_a_device']:.3f} processor seconds a device (its own work "
        f"{cost['own_seconds_a_device']:.3f}), and {cost['seconds_to_start_a_chunk']:.1f} to start "
        f"a chunk: {cost['projected_devices']:,} devices in chunks of {_CHUNK:,} would take "
        f"{cost['projected_core_hours']:,.0f} core-hours."
    )


def _changed(one: Figures) -> str:
    return (
        f"{_number(one['auc'])} ({_percent(one['better'])} of users better off, "
        f"{_percent(one['worse'])} worse, the worst {TAIL:.0%} by {_number(one['tail'])})"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
