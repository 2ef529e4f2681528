"""The page's content as plain values: the models' decisions, and their error rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import Device
from fala.base.errors import counted
from fala_sim.playground.page.devices import COLUMNS, DemoDevices
from fala_sim.playground.page.notes import Notes
from fala_sim.playground.page.posts import PASSES, SHOWN, TASTES, WANTED, Posts
from fala_sim.records.meter import memory_now

_MEGABYTE = 10**6


@dataclass(frozen=True)
class ViewColumn:
    """One model's predictions.

    Attributes:
        backbone: Name of its backbone.
        lean: The model's certainty of each decision, shape (n,): from -1, certainly fine, to 1,
            certainly unwelcome; 0 at a probability of 1/2.
    """

    backbone: str
    lean: NDArray[np.float64]

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Whether each post is unwelcome, as ``Device.predict`` decides, shape (n,)."""
        return self.lean > 0

    def wrong(self, truth: Mapping[int, int]) -> int:
        """Return the number of decisions that differ from the labels of posts, by position."""
        return sum(bool(self.decided[post]) != bool(label) for post, label in truth.items())

    def error_rate(self, truth: Mapping[int, int]) -> int | None:
        """Return the error rate on labelled posts in whole percent; None without a label."""
        return round(100 * self.wrong(truth) / len(truth)) if truth else None


def column_of(device: Device, texts: Sequence[str]) -> ViewColumn:
    """Return a device's predictions for posts."""
    return ViewColumn(device.status().release, 2 * device.predict_proba(texts)[:, 1] - 1)


def view_of(
    notes: Notes, devices: DemoDevices, posts: Posts, columns: Mapping[str, ViewColumn]
) -> dict[str, Any]:
    """Return the page's content for a visit whose devices are open.

    Args:
        notes: Notes of the visit.
        devices: Devices of the visit.
        posts: Posts of the visit.
        columns: Every device's predictions for the unseen posts.
    """
    labeller, passes = notes.get("who"), notes.get("passes", 0)
    labelled = devices.labelled()
    pending = posts.pending(labelled)
    checks = {int(post): label for post, label in notes.get("checks", {}).items()}
    truth = dict(enumerate(posts.truth)) if labeller == "reader" else checks
    stage = "labelling"
    if devices.replaced:
        stage = "rolled back" if devices.rolled_back else "shipped"
    shown = {name: columns[name] for name in COLUMNS if name in columns}
    if devices.replaced and np.allclose(shown["instant"].lean, shown["mine"].lean):
        del shown["instant"]  # the models share one column until they differ
    rows = [_post(post, posts, shown, truth) for post in range(len(posts.unseen))]
    differing = [row for row in rows if row["differ"]]
    return {
        "stage": stage,
        "who": labeller,
        "reader": notes.get("reader"),
        "tastes": TASTES,
        "labelled": len(labelled),
        "wanted": len(posts.documents) if labeller == "reader" else WANTED,
        "next": {"post": pending[0], "text": posts.documents[pending[0]]} if pending else None,
        "passes": passes,
        "more": min(PASSES, len(posts.documents) - passes),
        "documents": len(posts.documents),
        "verdict": demo_verdict(shown, truth, len(labelled), labeller, stage),
        "report": notes.get("report"),
        "changes": decision_changes(shown, truth) if stage == "shipped" else None,
        "tested": len(truth),
        "unwelcome": sum(truth.values()),
        "columns": [
            {
                "key": name,
                "backbone": column.backbone,
                "wrong": column.wrong(truth),
                "error_rate": column.error_rate(truth),
            }
            for name, column in shown.items()
        ],
        "posts": rows[:SHOWN],
        "differing": differing[:SHOWN],
        "differ": len(differing),
        "unseen": len(posts.unseen),
        "costs": _costs(notes, devices),
    }


def demo_verdict(
    columns: Mapping[str, ViewColumn],
    truth: Mapping[int, int],
    labelled: int,
    labeller: str | None,
    stage: str,
) -> str:
    """Describe the error rate of the user's model beside those of the other models.

    The text takes three lines on a phone. The page has the numbers of all models below it.

    Args:
        columns: Predictions on the page.
        truth: The user's or the reader's labels of unseen posts, by position.
        labelled: Number of labels that the user's model has learned from.
        labeller: ``visitor``, ``reader``, or None before the first label.
        stage: Stage of the visit.
    """
    if not truth:
        if stage != "labelling":
            return "Which model is right about you? Label some of the unseen posts."
        if labelled:
            learned = f"The personal model has learned {counted(labelled, 'label')}."
            return f"{learned} Is it right? Label some of the unseen posts."
        watch = ", or watch a reader" if labeller is None else ""
        return f"No model knows you yet. Label a post{watch}."
    rates = {name: f"{column.error_rate(truth)} %" for name, column in columns.items()}
    mine = f"error rate {rates['mine']} ({columns['mine'].wrong(truth)} of {len(truth)})"
    if stage == "labelling":
        model = "Personal model" if labelled else "Model without personalization"
        return f"{model}: {mine}."
    vendor = f"new model alone {rates['vendor']}"
    if stage == "rolled back":
        return f"Old personal model (active again): {mine}; {vendor}."
    return f"FaLA: {mine}; {vendor}; old personal model {rates['old']}."


def decision_changes(columns: Mapping[str, ViewColumn], truth: Mapping[int, int]) -> dict[str, int]:
    """Count the flips from the old personal model to FaLA: now right, and now wrong.

    Args:
        columns: Predictions on the page, of all devices.
        truth: Labels of unseen posts, by position; see ``demo_verdict``.
    """
    old, new = columns["old"].decided, columns["mine"].decided
    changed = [post for post in truth if bool(old[post]) != bool(new[post])]
    right = sum(bool(new[post]) == bool(truth[post]) for post in changed)
    return {"right": right, "wrong": len(changed) - right}


def _post(
    post: int, posts: Posts, columns: Mapping[str, ViewColumn], truth: Mapping[int, int]
) -> dict[str, Any]:
    decided = {name: bool(column.decided[post]) for name, column in columns.items()}
    return {
        "post": post,
        "text": posts.unseen[post],
        "label": truth.get(post),
        "lean": {name: float(column.lean[post]) for name, column in columns.items()},
        "differ": len(set(decided.values())) > 1,
    }


def _costs(notes: Notes, devices: DemoDevices) -> dict[str, Any]:
    """Return measured costs: wall seconds, files on the disk, and the process's peak memory."""
    return {
        "learn_seconds": notes.get("learn_seconds", 0.0),
        "replace_seconds": notes.get("replace_seconds"),
        "refine_seconds": notes.get("refine_seconds", 0.0),
        "rollback_seconds": notes.get("rollback_seconds"),
        "old_megabytes": devices.old_release.stat().st_size / _MEGABYTE,
        "new_megabytes": devices.new_release.stat().st_size / _MEGABYTE,
        "disk_megabytes": devices.size() / _MEGABYTE,
        "memory_megabytes": memory_now("VmHWM") / _MEGABYTE,
    }
