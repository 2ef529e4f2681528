"""What the page shows, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fala.personal.stages import peak_memory
from fala.playground.page.columns import Column, compared, quality
from fala.playground.page.devices import COLUMNS, Devices
from fala.playground.page.notes import Notes
from fala.playground.page.posts import AVERAGE, READERS, SHOWN, WANTED, Posts

_MEGABYTE = 10**6


def view_of(
    notes: Notes, devices: Devices, posts: Posts, columns: Mapping[str, Column]
) -> dict[str, Any]:
    """All that the page shows of an open walk.

    Args:
        notes: The walk's.
        devices: Its devices.
        posts: Its posts.
        columns: Every device's answers to the unseen posts.
    """
    who = notes.get("who")
    labelled = devices.labelled()
    left = [at for at, text in enumerate(posts.documents) if text not in labelled]
    checks = {int(post): label for post, label in notes.get("checks", {}).items()}
    truth = dict(enumerate(posts.truth)) if who == "reader" else checks
    stage = "labelling"
    if devices.replaced:
        stage = "rolled back" if devices.rolled_back else "shipped"
    sizes = devices.sizes()
    differing = [at for at in range(len(posts.unseen)) if len(_decided(columns, at)) > 1]
    return {
        "stage": stage,
        "who": who,
        "reader": notes.get("reader"),
        "readers": [
            {"number": number, "average": number in AVERAGE} for number in range(1, READERS + 1)
        ],
        "labelled": len(labelled),
        "unwelcome": sum(labelled.values()),
        "wanted": len(posts.documents) if who == "reader" else WANTED,
        "next": {"post": left[0], "text": posts.documents[left[0]]} if left else None,
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
        "posts": [_post(at, posts, columns, truth, notes) for at in range(SHOWN)],
        "differing": [_post(at, posts, columns, truth, notes) for at in differing[:SHOWN]],
        "differ": len(differing),
        "unseen": len(posts.unseen),
        "compared": (compared(columns, truth) if stage == "shipped" and truth else None),
        "costs": _costs(notes, devices, sum(sizes.values())),
    }


def _column(
    name: str, column: Column, size: int, notes: Notes, truth: Mapping[int, int]
) -> dict[str, Any]:
    # From the vendor's release to this answer, on this machine.
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
    at: int,
    posts: Posts,
    columns: Mapping[str, Column],
    truth: Mapping[int, int],
    notes: Notes,
) -> dict[str, Any]:
    first = notes.get("first")
    decided = {name: bool(column.decided[at]) for name, column in columns.items()}
    label = truth.get(at)
    lost = gained = False
    if label is not None and "old" in columns:
        lost = decided["old"] == bool(label) != decided["mine"]
        gained = decided["mine"] == bool(label) != decided["old"]
    return {
        "post": at,
        "text": posts.unseen[at],
        "label": label,
        "first": first[at] if at < len(first) else None,
        "unwelcome": {name: float(column.unwelcome[at]) for name, column in columns.items()},
        "decided": decided,
        "differ": len(_decided(columns, at)) > 1,
        "lost": lost,
        "gained": gained,
    }


def _decided(columns: Mapping[str, Column], at: int) -> set[bool]:
    """What the models decide about a post."""
    return {bool(column.decided[at]) for column in columns.values()}


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
