"""A trial of a replacement: play the vendor, then each user's device.

The vendor fits global heads on the public rows, and learns a bridge on their texts. Each user's
device is a real one in a temporary folder: it is created with the old release, learns the user's
train rows, is replaced within the budget, and is scored on the user's test rows: over a bridge
once before any forward pass, and once after the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.bundle.reading import Bundle
from fala.bundle.writing import add_bridge, write_release
from fala.device import Device
from fala.errors import DataError
from fala.examples import unique_texts
from fala.files import temporary_folder
from fala.model.heads import Head, Vectors
from fala.model.losses import label_probabilities
from fala.personal.budget import Budget
from fala.release.fitting import fit_bridge, fit_head
from fala.release.metrics import f1, scores
from fala.release.user_rows import Rows
from fala.report import Report

METRICS = ("auc", "f1", "accuracy")
MODELS = ("old_personal", "new_global", "instant", "fala")

#: Texts that are encoded between two steps of progress.
CHUNK = 256

#: Wraps the chunks of a long loop: (chunks, label, total number of items) -> chunks.
Progress = Callable[[Iterable[list[str]], str, int], Iterable[list[str]]]


@dataclass(frozen=True)
class Side:
    """The old or the new release of a trial.

    Attributes:
        name: The backbone's name.
        release: The release's file.
        head: Its head.
        embeddings: Embeddings of all test texts, and of the public ones where needed, by text.
        own_head: The bundle came with a head for these labels, which was kept.
        bridged: It has a bridge from the old backbone.
        bridge: Where that bridge is from, or why there is none, in words.
    """

    name: str
    release: Path
    head: Head
    embeddings: Mapping[str, Vectors]
    own_head: bool
    bridged: bool = False
    bridge: str = ""


def prepare(
    old: Bundle, new: Bundle, rows: Rows, users: Sequence[str], folder: Path, progress: Progress
) -> tuple[Side, Side]:
    """Make two releases of two bundles, with a bridge from the old one in the new one.

    A head that fits the data is kept, else one is fitted on the public rows; a bridge from the old
    backbone is kept, else one is learned on their texts, never on a user's.

    Args:
        old: A backbone, or a release.
        new: The same.
        rows: The data.
        users: The users who take part.
        folder: Where to write what is not one of the two files as it is.
        progress: Shows progress over texts.

    Raises:
        FalaError: If a bundle or the rows cannot be used.
    """
    source = old.backbone_digest
    own, same = source in new.bridges(), source == new.backbone_digest
    public = [] if own or same else unique_texts(row.example for row in rows.public)
    before, after = (
        _side(bundle, rows, users, public, folder / file, progress)
        for bundle, file in ((old, "old.fala"), (new, "new.fala"))
    )
    if own:
        return before, replace(after, bridged=True, bridge="the bundle's own")
    if same:
        return before, replace(after, bridge="none: both have the same backbone")
    vectors = [
        np.array([side.embeddings[text] for text in public]).reshape(len(public), -1)
        for side in (before, after)
    ]
    try:
        bridge = fit_bridge(source, *vectors)
    except DataError as error:
        return before, replace(after, bridge=f"none: {error}")
    learned = f"learned on {len(public)} public texts"
    release = folder / "new.fala"
    add_bridge(release, Bundle.open(after.release), bridge, {"from": before.name, "text": learned})
    return before, replace(after, release=release, bridged=True, bridge=learned)


def run_user(user: str, rows: Rows, old: Side, new: Side, budget: Budget) -> dict[str, Any]:
    """One user's device, from the old release to the new.

    Returns:
        The figures of ``fala-replace --json`` for one user.
    """
    train, test = rows.users[user].train, rows.users[user].test
    examples = [row.example for row in test]
    before, after = (side.head.inputs(examples, side.embeddings) for side in (old, new))
    spoken, words = (side.head.words(examples) for side in (old, new))
    position = {label: index for index, label in enumerate(rows.labels)}
    truth = np.array([position[str(row.label)] for row in test], dtype=np.int64)

    def answers(device: Device) -> dict[str, float | None]:
        return _scores(truth, device.model.logits(after, words), device.threshold)

    figures: dict[str, dict[str, float | None] | None] = {"instant": None}
    with (
        temporary_folder() as folder,
        Device.create(folder / "device", old.release) as device,
    ):
        device.learn([row.example for row in train], [row.label for row in train])
        figures["old_personal"] = _scores(
            truth, device.model.logits(before, spoken), device.threshold
        )
        if new.bridged or new.head.lexical is not None:
            first = device.replace(new.release, Budget(0))
            if first.instant is not None:  # word vectors are all looked up before they answer
                figures["instant"] = answers(device)
            more = Budget(budget.passes(new.bridged), budget.seconds)
            reports = [first, device.refine(more)]
        else:
            reports = [device.replace(new.release, budget)]
        figures["fala"] = answers(device)
    figures["new_global"] = _scores(truth, new.head.vendor_model().logits(after, words))
    return {"user": user, "documents": len(train), **_costs(reports), **_by_metric(figures)}


def mean(users: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures averaged over users; one that is undefined for a user is left out."""

    def average(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    instants = [user["instant"] for user in users if user["instant"] is not None]
    return {
        "documents": average(user["documents"] for user in users),
        "forward_passes": average(user["forward_passes"] for user in users),
        "instant": {"seconds": average(i["seconds"] for i in instants)} if instants else None,
        "seconds": {"total": average(user["seconds"]["total"] for user in users)},
        **{
            metric: {model: average(user[metric][model] for user in users) for model in MODELS}
            for metric in METRICS
        },
    }


def _side(
    bundle: Bundle,
    rows: Rows,
    users: Sequence[str],
    public: Sequence[str],
    release: Path,
    progress: Progress,
) -> Side:
    """Embed what is needed, and fit a head if the bundle has none; it is then written there."""
    head = bundle.head()
    own = head is not None and (head.task, head.labels) == (rows.task, rows.labels)
    tests = [row.example for user in users for row in rows.users[user].test]
    fitted_on = [] if own else [row.example for row in rows.public]
    texts = list(dict.fromkeys([*public, *unique_texts(fitted_on), *unique_texts(tests)]))
    backbone = bundle.backbone()
    chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
    embeddings: dict[str, Vectors] = {}
    for chunk in progress(chunks, f"{bundle.manifest.name}: texts", len(texts)):
        embeddings.update(zip(chunk, backbone.encode(chunk), strict=True))
    if own and head is not None:
        return Side(bundle.manifest.name, bundle.path, head, embeddings, own_head=True)
    # A single step, but on many rows it takes seconds.
    (head,) = (
        fit_head(
            backbone,
            fitted_on,
            [row.label for row in rows.public if row.label is not None],
            label_names=rows.labels,
            embeddings=embeddings,
        )
        for _ in progress([["head"]], f"{bundle.manifest.name}: head", 1)
    )
    write_release(release, bundle, head, {"head": f"fitted on {rows.source}"})
    return Side(bundle.manifest.name, release, head, embeddings, own_head=False)


def _scores(
    truth: NDArray[np.int64], logits: Vectors, threshold: float = 0.0
) -> dict[str, float | None]:
    """Score logits (n, C): F1 by a threshold of the one logit, accuracy at probability 1/2."""
    figures = scores(truth, label_probabilities(logits))
    if logits.shape[1] > 1:
        return figures
    return {**figures, "f1": f1(truth == 1, logits[:, 0] > threshold)}


def _costs(reports: Sequence[Report]) -> dict[str, Any]:
    """What a replacement decided and cost, from the reports of its stages."""
    first = reports[0]
    # A refinement that had nothing to solve decided nothing.
    last = next((report for report in reversed(reports) if report.solves), first)
    instant = None if first.instant is None else asdict(first.instant)
    loss, before = last.losses.get(last.decision), first.old_loss
    seconds: dict[str, float] = {}
    for report in reports:
        for stage, spent in report.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    return {
        "forward_passes": sum(report.forward_passes for report in reports),
        "decision": last.decision,
        "reason": last.reason,
        "worse": loss is not None and before is not None and loss > before,
        "stopped": last.stopped,
        "threshold": last.threshold,
        "instant": instant,
        "seconds": seconds,
    }


def _by_metric(figures: Mapping[str, Mapping[str, float | None] | None]) -> dict[str, Any]:
    return {
        metric: {
            model: None if (own := figures[model]) is None else own[metric] for model in MODELS
        }
        for metric in METRICS
    }
