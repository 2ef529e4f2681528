"""Is a release worth it to this user? The old, the vendor's new and the carried model compared."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from fala.errors import DataError, WorseModelError
from fala.model.losses import Floats, cross_entropy
from fala.personal.fitting import Fitted, fit_recalled
from fala.personal.memory import Memory, Recalled, Target, recall
from fala.personal.prepare import Prepared
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
        old: Mean cross-entropy in nats of the model that answers; None without an example.
        vendor: That of the vendor's own new model.
        carried: That of the personal model on the new backbone.
        to_old: How much worse the carried model is than the old one; None where that cannot be
            judged.
        to_vendor: How much worse it is than the vendor's.
        releases: How the two releases' own models go together, on all examples that both know.
    """

    labelled: int = 0
    old: float | None = None
    vendor: float | None = None
    carried: float | None = None
    to_old: Difference | None = None
    to_vendor: Difference | None = None
    releases: Correlation | None = None


def compare(installed: Task, prepared: Prepared) -> Compared:
    """Compare on the examples that have a label and a row on both backbones.

    The old model is fitted once more: its losses by example are not kept.
    """
    return compare_fits(
        installed, prepared.now, prepared.memory, prepared.recalled, prepared.fitted
    )


def compare_fits(
    installed: Task,
    now: OpenSlot,
    memory: Memory,
    recalled: Recalled,
    fitted: Fitted,
    only: Container[int] | None = None,
) -> Compared:
    """Compare a fit with what answers.

    Args:
        installed: The task.
        now: What answers.
        memory: What the device remembers.
        recalled: The examples, as the new fit knows them.
        fitted: The new fit.
        only: Ids of the examples to compare on; None for all.
    """
    before = _before(installed, memory, now)
    releases = _releases(before.own, _own_logits(recalled))
    if fitted.fit is None:
        return Compared(releases=releases)
    ids, shares = _labelled(recalled)
    carried = _by_example(recalled, fitted.left_out)
    vendor = _by_example(recalled, fitted.fit.vendor)
    known = before.losses
    both = [
        place for place, row in enumerate(ids) if row in known and (only is None or row in only)
    ]
    if not both:
        return Compared(releases=releases)
    old = np.array([known[ids[place]] for place in both])
    carried, vendor = carried[both], vendor[both]
    judged = can_judge(shares[both])
    return Compared(
        len(both), float(old.mean()), float(vendor.mean()), float(carried.mean()),
        _difference(carried - old) if judged else None,
        _difference(carried - vendor) if judged else None,
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

    The user's labels tell it, each left out. They are few: a release whose head was fitted to
    labels the wrong way round is refused by what it says of all examples, too, labelled or not.

    Raises:
        WorseModelError: It is.
    """
    advice = 'Wait for another release, or say accept="always"'
    to_old = accept == "better-than-old"
    if to_old and compared.releases is not None and compared.releases.contradicts:
        raise WorseModelError(
            f"{release}: its own model contradicts that of what answers; the device answers as "
            f"before. Their logits of {compared.releases.examples} of this user's examples have a "
            f"correlation of {compared.releases.value:.2f}. {advice}",
            compared.old,
            compared.carried,
        )
    against = compared.to_old if to_old else compared.to_vendor
    before = compared.old if to_old else compared.vendor
    what = "what answers" if to_old else "the vendor's own"
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


@dataclass(frozen=True)
class _Before:
    """What answers, by example.

    Attributes:
        losses: Of the labelled examples, each left out.
        own: Logits of its release's own model, (C,), of all.
    """

    losses: Mapping[int, float]
    own: Mapping[int, Floats]


def _before(installed: Task, memory: Memory, now: OpenSlot) -> _Before:
    """What answers, fitted once more where there are labels."""
    with installed.expecting(now):
        target = Target.of_slot(installed.store, now, installed.earlier())
    recalled = recall(memory, target)
    own = _own_logits(recalled)
    if not recalled.training.labelled.any():
        return _Before({}, own)
    fitted = fit_recalled(target, recalled, installed.positive(now.model.head))
    if fitted.fit is None:
        return _Before({}, own)
    z = fitted.fit.vendor if now.model.is_vendor else fitted.left_out
    losses = zip(_labelled(recalled)[0], _by_example(recalled, z).tolist(), strict=True)
    return _Before(dict(losses), own)


def _own_logits(recalled: Recalled) -> dict[int, Floats]:
    """Logits of a release's own model by example."""
    return dict(zip(recalled.ids, recalled.training.vendor_logits(), strict=True))


def _releases(before: Mapping[int, Floats], after: Mapping[int, Floats]) -> Correlation | None:
    """How the own models of two releases go together; None where one says the same of all."""
    both = [row for row in after if row in before]
    if not both or len(before[both[0]]) != len(after[both[0]]):  # it brings further labels
        return None
    old, new = (_centred(np.array([own[row] for row in both])) for own in (before, after))
    norm = float(np.linalg.norm(old) * np.linalg.norm(new))
    return Correlation(float((old * new).sum() / norm), len(both)) if norm else None


def _centred(z: Floats) -> Floats:
    """Logits (n, C) without what moves all examples alike, and what a softmax does not see."""
    if z.shape[1] > 1:
        z = z - z.mean(axis=1, keepdims=True)
    return np.asarray(z - z.mean(axis=0))


def _labelled(recalled: Recalled) -> tuple[list[int], Floats]:
    """Ids of the labelled examples, and their labels as class shares (n, C)."""
    labelled = np.flatnonzero(recalled.training.labelled)
    return [recalled.ids[place] for place in labelled.tolist()], recalled.training.labels[labelled]


def _by_example(recalled: Recalled, z: Floats) -> Floats:
    """Cross-entropy of every labelled example, shape (n,)."""
    labelled = recalled.training.labelled
    return cross_entropy(recalled.training.labels[labelled], z[labelled])


def _difference(losses: Floats) -> Difference:
    return Difference(float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses))))
