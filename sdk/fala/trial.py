"""A trial of a replacement: play the vendor, then each user's device.

The vendor fits global heads on the public rows. Each user's device is a real one in a temporary
folder: it is created with the old release, learns the user's train rows, is replaced within the
budget, and is scored on the user's test rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fala.bundle import Bundle, write_release
from fala.device import Device
from fala.examples import unique_texts
from fala.heads import Head, PersonalModel, Vectors
from fala.metrics import scores
from fala.replacement import Budget
from fala.rows import Row, Rows
from fala.vendor import fit_head

METRICS = ("auc", "f1", "accuracy")
MODELS = ("old_personal", "new_global", "fala")

_CHUNK = 256

#: Wraps the chunks of a long loop: (chunks, label, total number of texts) -> chunks.
Progress = Callable[[Iterable[list[str]], str, int], Iterable[list[str]]]


@dataclass(frozen=True)
class Side:
    """The old or the new release of a trial.

    Attributes:
        name: The backbone's name.
        release: The release's file.
        head: Its head.
        embeddings: Embeddings of all public and test texts, by text.
        own_head: The bundle came with a head for these labels, which was kept.
    """

    name: str
    release: Path
    head: Head
    embeddings: dict[str, Vectors]
    own_head: bool


def prepare(
    bundle: Bundle, rows: Rows, users: Sequence[str], folder: Path, progress: Progress
) -> Side:
    """Make a release of a bundle: keep its head if it fits the data, else fit one.

    Args:
        bundle: A backbone, or a release.
        rows: The data.
        users: The users who take part.
        folder: Where to write the release, if a head is fitted.
        progress: Shows progress over texts.

    Raises:
        FalaError: If the bundle or the rows cannot be used.
    """
    head = bundle.head()
    own = head is not None and (head.task, head.labels) == (rows.task, rows.labels)
    needed = [row.example for user in users for row in rows.users[user].test]
    if not own:
        needed = [row.example for row in rows.public] + needed
    texts = unique_texts(needed)
    backbone = bundle.backbone()
    chunks = [texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK)]
    embeddings: dict[str, Vectors] = {}
    for chunk in progress(chunks, f"{bundle.manifest.name}: texts", len(texts)):
        embeddings.update(zip(chunk, backbone.encode(chunk), strict=True))
    if not own or head is None:
        head = fit_head(
            backbone,
            [row.example for row in rows.public],
            [row.label for row in rows.public if row.label is not None],
            label_names=rows.labels,
            embeddings=embeddings,
        )
    release = bundle.path
    if not own:
        release = folder / f"{len(list(folder.iterdir()))}.fala"
        write_release(release, bundle, head, {"head": f"fitted on {rows.source}"})
    return Side(bundle.manifest.name, release, head, embeddings, own)


def run_user(
    user: str, rows: Rows, old: Side, new: Side, budget: Budget, seed: int
) -> dict[str, Any]:
    """One user's device, from the old release to the new.

    Returns:
        The figures of ``fala-replace --json`` for one user.
    """
    train, test = rows.users[user].train, rows.users[user].test
    with (
        tempfile.TemporaryDirectory(prefix="fala-") as folder,
        Device.create(Path(folder) / "device", old.release) as device,
    ):
        device.learn([row.example for row in train], [row.label for row in train])
        before = device.model
        report = device.replace(new.release, budget, seed=seed)
        after = device.model
    figures = {
        "old_personal": _score(before, old, test),
        "new_global": _score(new.head.vendor_model(), new, test),
        "fala": _score(after, new, test),
    }
    return {
        "user": user,
        "documents": len(train),
        "forward_passes": report.forward_passes,
        "decision": report.decision,
        "reason": report.reason,
        "seconds": report.seconds,
        **{metric: {model: figures[model][metric] for model in MODELS} for metric in METRICS},
    }


def mean(users: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures averaged over users; one that is undefined for a user is left out."""

    def average(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    return {
        "documents": average(user["documents"] for user in users),
        "forward_passes": average(user["forward_passes"] for user in users),
        "seconds": {"total": average(user["seconds"]["total"] for user in users)},
        **{
            metric: {model: average(user[metric][model] for user in users) for model in MODELS}
            for metric in METRICS
        },
    }


def _score(model: PersonalModel, side: Side, test: Sequence[Row]) -> dict[str, float | None]:
    inputs = side.head.inputs([row.example for row in test], side.embeddings)
    position = {label: index for index, label in enumerate(side.head.labels)}
    truth = np.array([position[str(row.label)] for row in test], dtype=np.int64)
    return scores(truth, model.probabilities(inputs))
