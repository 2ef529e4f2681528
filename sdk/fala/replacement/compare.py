"""Is a release worth it to this user? The old, the vendor's new and the carried model compared."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from fala.errors import DataError, WorseModelError
from fala.model.losses import Floats, cross_entropy
from fala.replacement.fitting import Fitted, fit_recalled
from fala.replacement.memory import Memory, Recalled, Target, recall
from fala.replacement.prepare import Prepared
from fala.report import Difference
from fala.solver.judge import can_judge
from fala.store.open_slot import OpenSlot
from fala.store.task import Task

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
    """

    labelled: int = 0
    old: float | None = None
    vendor: float | None = None
    carried: float | None = None
    to_old: Difference | None = None
    to_vendor: Difference | None = None


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
    before = _old_losses(installed, memory, now)
    if fitted.fit is None or before is None:
        return Compared()
    ids, shares = _labelled(recalled)
    carried = _by_example(recalled, fitted.left_out)
    vendor = _by_example(recalled, fitted.fit.vendor)
    both = [
        place for place, row in enumerate(ids) if row in before and (only is None or row in only)
    ]
    if not both:
        return Compared()
    old = np.array([before[ids[place]] for place in both])
    carried, vendor = carried[both], vendor[both]
    judged = can_judge(shares[both])
    return Compared(
        len(both), float(old.mean()), float(vendor.mean()), float(carried.mean()),
        _difference(carried - old) if judged else None,
        _difference(carried - vendor) if judged else None,
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

    Raises:
        WorseModelError: It is.
    """
    against = compared.to_old if accept == "better-than-old" else compared.to_vendor
    before = compared.old if accept == "better-than-old" else compared.vendor
    what = "what answers" if accept == "better-than-old" else "the vendor's own"
    if against is None or before is None or compared.carried is None or not against.worse:
        return
    raise WorseModelError(
        f"{release}: worse for this user than {what}; the device answers as before. "
        f"Cross-entropy of {compared.labelled} labels, each left out: {compared.carried:.3f} "
        f"against {before:.3f}, a difference of {against.mean:.3f} with a standard error of "
        f'{against.error:.3f}. Wait for another release, or say accept="always"',
        before,
        compared.carried,
    )


def _old_losses(installed: Task, memory: Memory, now: OpenSlot) -> dict[int, float] | None:
    """Loss of what answers on every labelled example, left out, by id."""
    with installed.expecting(now):
        target = Target.of_slot(installed.store, now, installed.earlier())
    recalled = recall(memory, target)
    if not recalled.training.labelled.any():
        return None
    fitted = fit_recalled(target, recalled, installed.positive(now.model.head))
    if fitted.fit is None:
        return None
    z = fitted.fit.vendor if now.model.is_vendor else fitted.left_out
    return dict(zip(_labelled(recalled)[0], _by_example(recalled, z).tolist(), strict=True))


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
