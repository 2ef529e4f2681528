"""Our own method by what it may cost, and how far its verdicts can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from fala import DataError
from fala_sim.methods.fala_shipped import Everything
from fala_sim.methods.registry import OURS, VENDOR
from fala_sim.metric.statistics import Figure, over_users, score, total_cost, total_flops
from fala_sim.records import Record
from fala_sim.show.tables.records import (
    Records,
    by_method,
    by_setting,
    described,
    made,
    mean,
    plain_mean,
    replacements,
    shared_by,
    title,
)
from fala_sim.show.tables.table import NOT_RUN, Cell, Table

#: The ends between which a budget's share of the gain is measured.
_EVERYTHING = Everything.name


def frontier(records: Records) -> Table:
    """What our method gives by its budget of forward passes, and what that costs.

    Raises:
        DataError: If no budget was run.
    """
    runs = records.need("frontier")
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        has = {record["method"] for record in records.of("replacement")}
        nothing = next((name for name in VENDOR if name in has), VENDOR[-1])
        ends = {
            name: shared_by(
                [
                    record
                    for record in records.of("replacement")
                    if record["method"] == name
                    and (record["data"], record["new"]) == (setting.data, setting.new)
                ],
                own,
            )
            for name in (nothing, _EVERYTHING)
        }
        budgets: dict[str, list[Record]] = {}
        for record in sorted(own, key=lambda record: int(record["variant"])):
            budgets.setdefault(record["variant"], []).append(record)
        parts: list[tuple[Cell, list[Record]]] = [
            (title(nothing, ends[nothing]), ends[nothing]),
            *((int(passes), group) for passes, group in budgets.items()),
            (title(_EVERYTHING, ends[_EVERYTHING]), ends[_EVERYTHING]),
        ]
        rows += [
            (
                setting.data,
                setting.new,
                budget,
                mean(group, score("auc")),
                _share(group, ends, score("auc")),
                mean(group, _decided),
                _share(group, ends, _decided),
                mean(group, score("f1")),
                plain_mean(group, total_cost("forward_passes")),
                plain_mean(group, total_flops),
                plain_mean(group, _instant),
                plain_mean(group, total_cost("seconds")),
            )
            for budget, group in parts
        ]
    return Table(
        "frontier",
        "What a budget of forward passes buys",
        f"{described(runs)} FaLA as shipped by its budget, between the vendor's new model and FaLA "
        "with all documents through the new backbone. Scores: mean over users ± deviation [95 % t "
        "interval over users]; F1: decided at the device's own threshold for the user, "
        "and, at zero, at the logit 0. Share of the gain: the mean's part of the way between the "
        "two ends, over the users and seeds that all have; no share where there is no gain. Cost: "
        f"mean over users of one whole replacement. {made(runs)}",
        ("data", "new", "budget (passes)", "AUC", "share of the gain in AUC", "F1",
         "share of the gain in F1", "F1 at zero", "forward passes", "FLOPs",
         "seconds to the first answer", "seconds"),
        rows,
    )  # fmt: skip


def verdicts(records: Records) -> Table:
    """How often a device was right to carry the personal model over.

    Raises:
        DataError: If our method was not run.
    """
    runs = [
        record
        for record in replacements(records)
        if record["method"] in OURS and "report" in record and "vendor" in record
    ]
    if not runs:
        raise DataError("no replacement by FaLA tells what the vendor's model scores; run it again")
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        for name, group in by_method(own):
            personal, calibrated = (
                [r for r in group if r["report"]["decision"] == decision]
                for decision in ("personal", "calibrated")
            )
            areas = [gain for r in personal if (gain := _gain(r, "auc")) is not None]
            losses = [-gain for r in personal if (gain := _gain(r, "loss")) is not None]
            rows.append(
                (
                    setting.data,
                    setting.new,
                    title(name, group),
                    len(group),
                    len(personal),
                    len(calibrated),
                    len(areas),
                    *_better(areas),
                    *_better(losses),
                )
            )
    return Table(
        "verdicts",
        "How often the device's verdict was right",
        f"{described(runs)} A replacement is one user's with one seed. Personal: the device found "
        "the personal model better than the vendor's new one by what it can check, and carried it "
        "over; calibrated: it found nothing better than the vendor's with the user's own slope and "
        "bias, which ranks as the vendor's does. Of the personal: how many have an AUC (both "
        "labels are held out), and how often the personal model was the better one on the held-out "
        "examples, by AUC and by cross-entropy.",
        ("data", "new", "method", "replacements", "personal", "calibrated", "with an AUC",
         "better by AUC", "share by AUC", "better by cross-entropy", "share by cross-entropy"),
        rows,
    )  # fmt: skip


def _decided(record: Record) -> float | None:
    """F1 at the device's own threshold; at the logit 0 for what has no other."""
    value: float | None = record["decided" if "decided" in record else "scores"]["f1"]
    return value


def _instant(record: Record) -> float | None:
    """Seconds until a personal model answered that had seen no forward pass."""
    instant = record.get("report", {}).get("instant") or {}
    seconds: float | None = instant.get("seconds")
    return seconds


def _share(group: Sequence[Record], ends: dict[str, list[Record]], figure: Figure) -> Cell:
    """What part of the gain between two ends some records have; None without a gain."""
    nothing, everything = ends.values()
    parts = (nothing, group, everything)
    means = [over_users(shared_by(part, *parts), figure).value() for part in parts]
    low, here, high = (None if value is None else value.mean for value in means)
    if low is None or here is None or high is None:
        return NOT_RUN
    return (here - low) / (high - low) if high > low else None


def _gain(record: Record, name: str) -> float | None:
    ours, vendors = record["scores"][name], record["vendor"][name]
    return None if ours is None or vendors is None else ours - vendors


def _better(gains: Sequence[float]) -> tuple[Cell, Cell]:
    count = sum(gain > 0 for gain in gains)
    return count, count / len(gains) if gains else None
