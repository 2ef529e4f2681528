"""The page's content as plain values: the models' decisions, and how many are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import Device
from fala_export.fitting.metrics import auc
from fala_sim.meter import memory
from fala_sim.playground.page.devices import COLUMNS, Devices
from fala_sim.playground.page.notes import Notes
from fala_sim.playground.page.posts import PASSES, SHOWN, TASTES, WANTED, Posts

_MEGABYTE = 10**6


@dataclass(frozen=True)
class Column:
    """One model's predictions.

    Attributes:
        backbone: Its backbone's name.
        lean: The model's certainty of each decision, shape (n,): from -1, certainly fine, to 1,
            certainly unwelcome; 0 at a probability of 1/2.
    """

    backbone: str
    lean: NDArray[np.float64]

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Whether each post is unwelcome, shape (n,).

        All models decide at a probability of 1/2, which minimizes the expected errors. The
        threshold of ``Device.predict`` maximizes F1, and makes more errors.
        """
        return self.lean > 0

    def wrong(self, truth: Mapping[int, int]) -> int:
        """Number of decisions that differ from the labels of posts, by position."""
        return sum(bool(self.decided[post]) != bool(label) for post, label in truth.items())

    def auc(self, truth: Mapping[int, int]) -> float | None:
        """AUC of the model's order of the posts; None if all labels are the same."""
        labels = np.array(list(truth.values()), dtype=np.int64) == 1
        return auc(labels, self.lean[np.array(list(truth), dtype=np.int64)])


def column_of(device: Device, texts: Sequence[str]) -> Column:
    """A device's predictions for posts."""
    return Column(device.backbone, 2 * device.predict_proba(texts)[:, 1] - 1)


def view_of(
    notes: Notes, devices: Devices, posts: Posts, columns: Mapping[str, Column]
) -> dict[str, Any]:
    """The page's content for a visit whose devices are open.

    Args:
        notes: The visit's notes.
        devices: Its devices.
        posts: Its posts.
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
        del shown["instant"]  # one column until they differ
    sizes = devices.sizes()
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
        "verdict": verdict(shown, truth, labeller, passes, stage),
        "report": notes.get("report"),
        "warnings": list(warnings(shown, truth)) if stage == "shipped" and truth else [],
        "counted": counted(truth, labeller) if truth else "",
        "unwelcome": sum(truth.values()),
        "columns": [
            {
                "key": name,
                "backbone": column.backbone,
                "megabytes": sizes[name] / _MEGABYTE,
                "wrong": column.wrong(truth),
                "auc": column.auc(truth),
            }
            for name, column in shown.items()
        ],
        "posts": rows[:SHOWN],
        "differing": differing[:SHOWN],
        "differ": len(differing),
        "unseen": len(posts.unseen),
        "costs": _costs(notes, devices, sum(sizes.values())),
    }


def verdict(
    columns: Mapping[str, Column],
    truth: Mapping[int, int],
    labeller: str | None,
    passes: int,
    stage: str,
) -> str:
    """The errors of each model, and whether personalization helps, in words.

    Args:
        columns: The predictions on the page.
        truth: The reader's or the visitor's labels of unseen posts, by position.
        labeller: ``visitor``, ``reader``, or None before the first label.
        passes: Number of the user's texts encoded by the new backbone.
        stage: The visit's stage.
    """
    if not truth:
        watch = ", or watch a reader" if labeller is None else ""
        return f"Which model is wrong about you? Label some of the posts below{watch}."
    wrong = {name: column.wrong(truth) for name, column in columns.items()}
    whom, old, new = "the reader", "the old personal one", "the new one"
    if labeller != "reader":
        whom, old, new = "you", "your old one", "yours"
    posts = counted(truth, labeller)
    if stage == "labelling":
        return f"Of {posts} the personal model is wrong about {whom} on {wrong['mine']}."
    counts = (
        f"Of {posts} the vendor's model is wrong about {whom} on {wrong['vendor']}, "
        f"{old} on {wrong['old']}"
    )
    if stage == "rolled back":
        return f"{counts}; {old} is active again."
    counts += f", {new} at once on {wrong.get('instant', wrong['mine'])}"
    if passes:
        counts += f", after {passes} texts on {wrong['mine']}"
    if wrong["mine"] < wrong["vendor"]:
        return f"{counts}."
    return f"{counts}. On these posts personalization does not help {whom}."


def counted(truth: Mapping[int, int], labeller: str | None) -> str:
    """The unseen posts with a label, in words: ``100 new posts``, or ``your 8 posts``."""
    if labeller == "reader":
        return f"{len(truth)} new posts"
    return f"your {len(truth)} post{'' if len(truth) == 1 else 's'}"


def warnings(columns: Mapping[str, Column], truth: Mapping[int, int]) -> Iterator[str]:
    """Reports, in words, that the user's new model is worse than the old one or the vendor's.

    Args:
        columns: The predictions on the page, of all devices.
        truth: See ``verdict``.
    """
    old, new = columns["old"].decided, columns["mine"].decided
    changed = [post for post in truth if bool(old[post]) != bool(new[post])]
    lost = sum(bool(old[post]) == bool(truth[post]) for post in changed)
    if lost:
        yield (
            f"On {lost} of {len(truth)} posts the old model was right and the new one is wrong; on "
            f"{len(changed) - lost} it is the other way round."
        )
    if 2 * lost > len(changed):
        yield "The old model is wrong on fewer of these posts. One press rolls back."
    area_of_mine = columns["mine"].auc(truth)
    for name, title in (("old", "old"), ("vendor", "vendor's new")):
        area = columns[name].auc(truth)
        if area is not None and area_of_mine is not None and area > area_of_mine:
            better = f"AUC {area:.3f} to {area_of_mine:.3f}"
            yield f"The {title} model orders these posts better: {better}."


def _post(
    post: int, posts: Posts, columns: Mapping[str, Column], truth: Mapping[int, int]
) -> dict[str, Any]:
    decided = {name: bool(column.decided[post]) for name, column in columns.items()}
    label = truth.get(post)
    lost = label is not None and decided.get("old") == bool(label) != decided["mine"]
    return {
        "post": post,
        "text": posts.unseen[post],
        "label": label,
        "lean": {name: float(column.lean[post]) for name, column in columns.items()},
        "differ": len(set(decided.values())) > 1,
        "lost": lost,
    }


def _costs(notes: Notes, devices: Devices, size: int) -> dict[str, Any]:
    """Measured costs: wall seconds, files on the disk, and the process's peak memory."""
    return {
        "learn_seconds": notes.get("learn_seconds", 0.0),
        "replace_seconds": notes.get("replace_seconds"),
        "refine_seconds": notes.get("refine_seconds", 0.0),
        "rollback_seconds": notes.get("rollback_seconds"),
        "old_megabytes": devices.old_release.stat().st_size / _MEGABYTE,
        "new_megabytes": devices.new_release.stat().st_size / _MEGABYTE,
        "disk_megabytes": size / _MEGABYTE,
        "memory_megabytes": memory("VmHWM") / _MEGABYTE,
    }
