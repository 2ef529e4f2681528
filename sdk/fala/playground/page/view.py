"""What the page shows, as plain values: the models' answers to the posts, and their figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.device import Device
from fala.personal.run import peak_memory
from fala.playground.page.devices import COLUMNS, Devices
from fala.playground.page.notes import Notes
from fala.playground.page.posts import AVERAGE, READERS, SHOWN, WANTED, Posts
from fala.release.metrics import auc, f1

_MEGABYTE = 10**6


def view_of(
    notes: Notes, devices: Devices, posts: Posts, columns: Mapping[str, Column]
) -> dict[str, Any]:
    """All that the page shows of a visit whose devices are open.

    Args:
        notes: The visit's.
        devices: Its devices.
        posts: Its posts.
        columns: Every device's answers to the unseen posts.
    """
    who = notes.get("who")
    labelled = devices.labelled()
    pending = posts.pending(labelled)
    checks = {int(post): label for post, label in notes.get("checks", {}).items()}
    truth = dict(enumerate(posts.truth)) if who == "reader" else checks
    stage = "labelling"
    if devices.replaced:
        stage = "rolled back" if devices.rolled_back else "shipped"
    sizes = devices.sizes()
    differing = [post for post in range(len(posts.unseen)) if _differ(columns, post)]
    return {
        "stage": stage,
        "who": who,
        "reader": notes.get("reader"),
        "readers": [
            {"number": number, "average": number in AVERAGE} for number in range(1, READERS + 1)
        ],
        "labelled": len(labelled),
        "wanted": len(posts.documents) if who == "reader" else WANTED,
        "next": {"post": pending[0], "text": posts.documents[pending[0]]} if pending else None,
        "passes": notes.get("passes", 0),
        "target": notes.get("target", 0),
        "documents": len(posts.documents),
        "stopped": notes.get("stopped", ""),
        "sentence": notes.get("sentence", ""),
        "columns": [
            _column(name, columns[name], sizes[name], notes, truth)
            for name in COLUMNS
            if name in columns
        ],
        "posts": [_post(post, posts, columns, truth, notes) for post in range(SHOWN)],
        "differing": [_post(post, posts, columns, truth, notes) for post in differing[:SHOWN]],
        "differ": len(differing),
        "unseen": len(posts.unseen),
        "compared": (compared(columns, truth) if stage == "shipped" and truth else None),
        "costs": _costs(notes, devices, sum(sizes.values())),
    }


def _column(
    name: str, column: Column, size: int, notes: Notes, truth: Mapping[int, int]
) -> dict[str, Any]:
    # From the new release to this answer, on this machine.
    seconds = {
        "old": 0.0,
        "vendor": notes.get("install_seconds", 0.0),
        "instant": notes.get("replace_seconds", 0.0),
        "mine": notes.get("replace_seconds", 0.0) + notes.get("refine_seconds", 0.0),
    }
    return {
        "key": name,
        "backbone": column.backbone,
        "threshold": column.threshold,
        "passes": notes.get("passes", 0) if name == "mine" else 0,
        "seconds": seconds[name],
        "megabytes": size / _MEGABYTE,
        **quality(column, truth),
    }


def _post(
    post: int,
    posts: Posts,
    columns: Mapping[str, Column],
    truth: Mapping[int, int],
    notes: Notes,
) -> dict[str, Any]:
    first = notes.get("first")
    decided = {name: bool(column.decided[post]) for name, column in columns.items()}
    label = truth.get(post)
    lost = False
    if label is not None and "old" in columns:
        lost = decided["old"] == bool(label) != decided["mine"]
    return {
        "post": post,
        "text": posts.unseen[post],
        "label": label,
        "first": first[post] if post < len(first) else None,
        "unwelcome": {name: float(column.unwelcome[post]) for name, column in columns.items()},
        "decided": decided,
        "differ": _differ(columns, post),
        "lost": lost,
    }


def _differ(columns: Mapping[str, Column], post: int) -> bool:
    """Whether two models decide differently about a post."""
    return len({bool(column.decided[post]) for column in columns.values()}) > 1


def _costs(notes: Notes, devices: Devices, size: int) -> dict[str, Any]:
    """Measured here: wall seconds, files on the disk, and the process's most memory."""
    return {
        "learn_seconds": notes.get("learn_seconds", 0.0),
        "replace_seconds": notes.get("replace_seconds"),
        "refine_seconds": notes.get("refine_seconds", 0.0),
        "rollback_seconds": notes.get("rollback_seconds"),
        "old_megabytes": devices.old_release.stat().st_size / _MEGABYTE,
        "new_megabytes": devices.new_release.stat().st_size / _MEGABYTE,
        "disk_megabytes": size / _MEGABYTE,
        "memory_megabytes": peak_memory() / _MEGABYTE,
    }


@dataclass(frozen=True)
class Column:
    """One model's answers.

    Attributes:
        backbone: Its backbone's name.
        unwelcome: Probabilities that a post is unwelcome, shape (n,).
        threshold: The probability above which the model decides that it is.
    """

    backbone: str
    unwelcome: NDArray[np.float64]
    threshold: float

    @property
    def decided(self) -> NDArray[np.bool_]:
        """The decisions of the model, shape (n,), as of ``Device.decide``."""
        return self.unwelcome > self.threshold


def column_of(device: Device, texts: Sequence[str]) -> Column:
    """Ask a device about posts."""
    unwelcome = device.predict(texts)[:, 1]
    return Column(device.name, unwelcome, 1 / (1 + math.exp(-device.threshold)))


def quality(column: Column, truth: Mapping[int, int]) -> dict[str, Any]:
    """The figures of a model.

    Args:
        column: Its answers.
        truth: The reader's or the visitor's labels, by a post's position.

    Returns:
        How many of its decisions are ``right`` ``of`` how many; ``auc``, None where it is not
        defined; and ``f1`` of its decisions, for which a threshold is fitted.
    """
    posts = np.array(sorted(truth), dtype=np.int64)
    labels = np.array([truth[int(post)] for post in posts], dtype=np.int64) == 1
    decided = column.decided[posts]
    return {
        "right": int((decided == labels).sum()),
        "of": len(posts),
        "auc": auc(labels, column.unwelcome[posts]),
        "f1": f1(labels, decided),
    }


def compared(columns: Mapping[str, Column], truth: Mapping[int, int]) -> dict[str, Any]:
    """Where the user's new model does worse than the old one, and where better.

    Args:
        columns: All answers.
        truth: See ``quality``.

    Returns:
        ``of`` how many posts the old one decides rightly and the new one wrongly (``lost``), or the
        other way round (``gained``); and the columns that are ``better`` than the user's: by AUC,
        and by right decisions where that is not defined.
    """
    old, new = columns["old"].decided, columns["mine"].decided
    changed = [post for post in sorted(truth) if bool(old[post]) != bool(new[post])]
    lost = [post for post in changed if bool(old[post]) == bool(truth[post])]

    def score(name: str) -> float:
        figures = quality(columns[name], truth)
        return float(figures["right"] if figures["auc"] is None else figures["auc"])

    better = [name for name in ("old", "vendor") if score(name) > score("mine")]
    return {
        "of": len(truth),
        "lost": len(lost),
        "gained": len(changed) - len(lost),
        "better": better,
    }
