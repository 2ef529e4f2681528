"""Is a release worth it to this user? The old, the vendor's new and the carried model compared."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from fala.errors import DataError, WorseModelError
from fala.model.losses import Floats, cross_entropy
from fala.personal.gather import Rows, Space, gather
from fala.personal.refit import Judged, Refit, judged
from fala.report import Correlation, Difference
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task
from fala.solver.judge import can_judge

#: What a new model must not be proven worse than, to be installed.
Accept: TypeAlias = Literal["always", "better-than-old", "better-than-vendor"]


@dataclass(frozen=True)
class Compared:
    """Leave-one-out losses of three models on the same labelled examples.

    Attributes:
        labelled: How many those are.
        old: Mean cross-entropy in nats of the active model; None without an example.
        vendor: That of the vendor's own new model.
        carried: That of the personal model on the new backbone.
        to_old: How much worse the carried model is than the old one; None where that cannot be
            judged.
        to_vendor: How much worse it is than the vendor's.
        releases: The correlation of the two vendor models, on all examples that have a row on
            both backbones.
    """

    labelled: int = 0
    old: float | None = None
    vendor: float | None = None
    carried: float | None = None
    to_old: Difference | None = None
    to_vendor: Difference | None = None
    releases: Correlation | None = None


def compare(
    task: Task,
    active: OpenSlot,
    new: Refit,
    model: Judged,
    only: Container[int] | None = None,
) -> Compared:
    """Compare on the examples that have a label and a row on both backbones.

    The active model is fitted once more: its losses by example are not kept.

    Args:
        task: The task.
        active: Its active slot.
        new: What the new model was fitted to.
        model: The new model.
        only: Ids of the examples to compare on; None for all.
    """
    with task.expecting(active):
        space = Space.of_slot(task.store, active, task.previous)
    rows = gather(new.snapshot, space)
    releases = _releases(_vendor_logits(rows), _vendor_logits(new.rows))
    if model.fit is None or not rows.training.labelled.any():
        return Compared(releases=releases)
    old = judged(space, rows, task.positive(active.model.head))
    if old.fit is None:
        return Compared(releases=releases)
    z = old.fit.vendor if active.model.is_vendor else old.left_out
    old_losses = dict(zip(_labelled(rows)[0], _losses(rows, z).tolist(), strict=True))
    ids, shares = _labelled(new.rows)
    both = [
        position
        for position, row in enumerate(ids)
        if row in old_losses and (only is None or row in only)
    ]
    if not both:
        return Compared(releases=releases)
    before = np.array([old_losses[ids[position]] for position in both])
    carried = _losses(new.rows, model.left_out)[both]
    vendor = _losses(new.rows, model.fit.vendor)[both]
    enough = can_judge(shares[both])
    return Compared(
        len(both), float(before.mean()), float(vendor.mean()), float(carried.mean()),
        _difference(carried - before) if enough else None,
        _difference(carried - vendor) if enough else None,
        releases,
    )  # fmt: skip


def accept_of(value: str) -> Accept:
    """What is accepted, checked.

    Raises:
        DataError: It is none of the words.
    """
    if value not in get_args(Accept):
        words = ", ".join(f'"{word}"' for word in get_args(Accept))
        raise DataError(f"accept is one of {words}, not {value!r:.60}")
    return cast(Accept, value)


def refuse_worse(compared: Compared, accept: Accept, release: object) -> None:
    """Refuse a model that is worse for this user beyond chance.

    The user's labels decide, each left out. They are few: a release whose head was fitted to
    labels the wrong way round is refused by its logits of all examples, too, labelled or not.

    Raises:
        WorseModelError: It is.
    """
    advice = 'Wait for another release, or pass accept="always"'
    to_old = accept == "better-than-old"
    if to_old and compared.releases is not None and compared.releases.contradicts:
        raise WorseModelError(
            f"{release}: its vendor model contradicts that of the active release; the device "
            f"answers as before. Their logits of {compared.releases.examples} of this user's "
            f"examples have a correlation of {compared.releases.value:.2f}. {advice}",
            compared.old,
            compared.carried,
        )
    against = compared.to_old if to_old else compared.to_vendor
    before = compared.old if to_old else compared.vendor
    what = "the active model" if to_old else "the vendor's own"
    if against is None or before is None or compared.carried is None or not against.worse:
        return
    raise WorseModelError(
        f"{release}: worse for this user than {what}; the device answers as before. "
        f"Cross-entropy of {compared.labelled} labels, each left out: {compared.carried:.3f} "
        f"against {before:.3f}, a difference of {against.mean:.3f} with a standard error of "
        f"{against.error:.3f}. {advice}",
        before,
        compared.carried,
    )


def _vendor_logits(rows: Rows) -> dict[int, Floats]:
    """Logits of a release's vendor model by example."""
    return dict(zip(rows.ids, rows.training.vendor_logits(), strict=True))


def _releases(before: Mapping[int, Floats], after: Mapping[int, Floats]) -> Correlation | None:
    """How two vendor models go together; None where one gives all examples the same logits."""
    both = [row for row in after if row in before]
    if not both or len(before[both[0]]) != len(after[both[0]]):  # it brings further labels
        return None
    old, new = (_centred(np.array([z[row] for row in both])) for z in (before, after))
    norm = float(np.linalg.norm(old) * np.linalg.norm(new))
    return Correlation(float((old * new).sum() / norm), len(both)) if norm else None


def _centred(z: Floats) -> Floats:
    """Logits (n, C) without what moves all examples alike, and what a softmax does not see."""
    if z.shape[1] > 1:
        z = z - z.mean(axis=1, keepdims=True)
    return np.asarray(z - z.mean(axis=0))


def _labelled(rows: Rows) -> tuple[list[int], Floats]:
    """Ids of the labelled examples, and their labels as class shares (n, C)."""
    labelled = np.flatnonzero(rows.training.labelled)
    return [rows.ids[position] for position in labelled.tolist()], rows.training.labels[labelled]


def _losses(rows: Rows, z: Floats) -> Floats:
    """Cross-entropy of every labelled example, shape (n,)."""
    labelled = rows.training.labelled
    return cross_entropy(rows.training.labels[labelled], z[labelled])


def _difference(losses: Floats) -> Difference:
    return Difference(float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses))))
