"""Compare the old model, the new model alone and the carried model on a user's examples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from fala.base.errors import DeviceError, WorseModelError, model_changed
from fala.base.examples import Example
from fala.base.products import Floats
from fala.personal.gather import Space, gather
from fala.personal.refit import Refit, fit_rows
from fala.report import Changes, SideBySide
from fala.report.comparison import comparison_in_words, losses_in_words
from fala.slots.folder import Snapshot
from fala.slots.slot import Slot
from fala.slots.status import was_rolled_back
from fala.slots.switching import use
from fala.solver.decision import MIN_REAL, Comparison, Correlation, Difference, can_compare

Measured = TypeVar("Measured")

#: The models that are compared; see ``Sides.measured``.
_MODELS = ("old", "vendor", "carried")

#: The model that a new model must not be proven worse than, to be installed.
Accept: TypeAlias = Literal["always", "better-than-old", "better-than-vendor"]


class Sides:
    """A user's examples as rows of the old and of the new model.

    Args:
        old: The slot of the old model.
        new: The new model.
        bundle: The digest of the new model's release.
    """

    def __init__(self, old: Slot, new: Refit, bundle: str) -> None:
        self._old, self._new, self._bundle = old, new, bundle
        self._same = old.record.bundle == bundle
        reading = new.rows.reading
        self._rows = gather(reading, Space.of_slot(reading.store, old, None))

    def beside(self, new: Refit) -> Sides:
        """Return the same old model beside a later fit on the same release.

        A model that was fitted to the same examples and labels is not fitted again.
        """
        if new is self._new:
            return self
        if self._same or new.rows.reading.data != self._new.rows.reading.data:
            return Sides(self._old, new, self._bundle)
        sides = copy(self)
        sides._new = new
        return sides

    def labelled(self) -> set[int]:
        """Return the ids of the labelled examples that have a row on both backbones."""
        return set(self._rows.labelled()) & set(self._new.rows.labelled())

    def encoded(self) -> set[int]:
        """Return the ids of the examples that both backbones have encoded."""
        return self._rows.encoded() & self._new.rows.encoded()

    @cached_property
    def _refitted(self) -> Refit:
        """The old model, fitted again to the current labels because its losses are not stored.

        On the same release it is the new model. Only the old logits, which are evidence for the new
        model as well, would tell the two apart, and these know the labels that are left out.
        """
        return self._new if self._same else fit_rows(self._rows, left_out_only=True)

    def measured(
        self, ids: Collection[int], measure: Callable[[Floats, Floats], Measured]
    ) -> dict[str, Measured] | None:
        """Measure three models on some labelled examples, each left out, and return this by model.

        The models are ``"old"``, the old personal model; ``"vendor"``, the new model alone;
        and ``"carried"``, the personal model on the new backbone.

        Args:
            ids: The ids of the examples.
            measure: A function that is called with labels and logits, each (n, C).

        Returns:
            The measure of each model; None if the old or the new model is not fitted.
        """
        after = self._new
        if after.fit is None or (before := self._refitted).fit is None:
            return None
        old = before.fit.vendor if self._old.model.is_vendor else before.left_out
        models = {
            "old": (before, old), "vendor": (after, after.fit.vendor),
            "carried": (after, after.left_out),
        }  # fmt: skip
        return {
            name: measure(model.rows.take(model.rows.training.labels, ids), model.rows.take(z, ids))
            for name, (model, z) in models.items()
        }

    def compare(self) -> Comparison:
        """Compare the models on the labelled examples that both backbones have encoded.

        Nothing is fitted if there are too few of them.
        """
        # All three models share one link, because the noise of two releases' ratings differs.
        link = self._new.rows.space.head.link
        labelled, releases = self.labelled(), self.releases()
        ids = self.encoded() & labelled
        comparison = Comparison(len(ids), releases=releases, measure=link.measure)
        doubtful = releases is not None and not releases.agrees
        if doubtful and (every := self._losses(labelled)) is not None:
            training = self._rows.training
            old, labels = (
                self._rows.take(numbers, labelled)
                for numbers in (training.vendor_logits(), training.labels)
            )
            comparison = replace(
                comparison,
                to_old_of_all=Difference.of(every["carried"], every["old"]),
                old_with_labels=Correlation.of(link.centred(old), labels, real=True),
            )
        losses = self._losses(ids)
        if losses is None:
            return comparison
        scores = self.measured(ids, link.scores) or {}
        return replace(
            comparison,
            old=float(losses["old"].mean()),
            vendor=float(losses["vendor"].mean()),
            carried=float(losses["carried"].mean()),
            to_old=Difference.of(losses["carried"], losses["old"]),
            to_vendor=Difference.of(losses["carried"], losses["vendor"]),
            scores={name: values for name, values in scores.items() if values},
        )

    def changes(self) -> Changes | None:
        """Return what the new model changes; None without an example or a fitted model."""
        ids = sorted(self.labelled())
        head = self._new.rows.space.head
        link = head.link
        if not ids:
            return None
        estimated = len(ids) - len(self.encoded().intersection(ids))
        if link.kind == "rating":
            scores = self.measured(ids, link.scores)
            if scores is None:
                return None
            old, vendor, new = (scores[name]["rmse"] for name in _MODELS)
            known = None if head.constant else vendor
            return Changes(len(ids), estimated, "rmse", old, known, new)
        right = self.measured(ids, lambda labels, z: link.classes(z) == link.classes(labels))
        if right is None:
            return None
        old, vendor, new = (100 * float(np.mean(~right[name])) for name in _MODELS)
        before, now = right["old"], right["carried"]
        flips = [tuple(np.array(ids)[part].tolist()) for part in (before & ~now, ~before & now)]
        known = None if head.constant else vendor
        return Changes(len(ids), estimated, "error rate", old, known, new, *flips)

    def _losses(self, ids: Collection[int]) -> dict[str, Floats] | None:
        """Return the three models' losses on some labelled examples; None if they are too few."""
        rows = self._new.rows
        link = rows.space.head.link
        if not can_compare(rows.take(rows.training.labels, ids), link):
            return None
        return self.measured(ids, link.losses)

    def releases(self) -> Correlation | None:
        """Return the correlation of the two vendor models, on encoded examples if there are enough.

        It is None if all logits of one model are equal.
        """
        encoded = self.encoded()
        real = len(encoded) >= MIN_REAL
        before, after = self._rows, self._new.rows
        ids = sorted(encoded if real else set(before.ids) & set(after.ids))
        logits = [rows.take(rows.training.vendor_logits(), ids) for rows in (before, after)]
        if logits[0].shape != logits[1].shape:  # the new release adds labels
            return None
        old, new = map(after.space.head.link.centred, logits)
        return Correlation.of(old, new, real=real)


def sides_of_previous(snapshot: Snapshot, last: Refit) -> Sides | None:
    """Return the active model beside the one before the last replacement.

    It is None if there was no replacement, it was rolled back, nothing is fitted, or the old
    release is deleted.

    Args:
        snapshot: The snapshot of the task.
        last: The active model, as it was fitted.
    """
    previous = snapshot.task.previous(snapshot)
    if previous is None or last.fit is None or was_rolled_back(snapshot, previous):
        return None
    return Sides(previous, last, snapshot.active.record.bundle)


def slot_before(snapshot: Snapshot) -> Slot:
    """Return the previous slot of a task.

    Raises:
        DeviceError: If there is no previous slot, or it is damaged.
    """
    previous = snapshot.task.previous(snapshot)
    if previous is None:
        reason = (
            "the previous model is damaged"
            if snapshot.state.previous
            else "no earlier model is kept"
        )
        raise DeviceError(
            f"{snapshot.task.folder.path}: there is no model to compare with: {reason}"
        )
    return previous


def side_by_side(snapshot: Snapshot, previous: Slot, examples: Sequence[Example]) -> SideBySide:
    """Decide examples by the previous and by the active model; see ``Device.compare``.

    Args:
        snapshot: The snapshot of the task.
        previous: The task's previous slot.
        examples: The n checked examples.

    Raises:
        DeviceChangedError: If another release has become active meanwhile.
    """
    # This is outside ``use``, which blames the release on trial for an error.
    z_before = previous.logits(examples)
    now, z_now = use(snapshot.task, lambda now: now.active.logits(examples), examples, snapshot)
    if not now.is_of_release(snapshot):
        raise model_changed(snapshot.task.folder.path)
    first, link = previous.model.head, now.head.link
    decided = first.link.predict(z_before, first.labels), link.predict(z_now, now.head.labels)
    proba_before = proba_now = None
    if link.kind == "rating":
        differ = np.abs(decided[1] - decided[0]) > (link.high - link.low) / 10
    else:
        # Labels are compared by their positions, which replacements keep, because two releases may
        # have different types of labels.
        places = [
            head.link.predict(z, range(len(head.labels)))
            for head, z in ((first, z_before), (now.head, z_now))
        ]
        differ = places[0] != places[1]
        proba_before, proba_now = first.link.values(z_before), link.values(z_now)
    return SideBySide(
        previous.release.name, now.release.name, *decided, proba_before, proba_now,
        np.asarray(differ, dtype=np.bool_),
    )  # fmt: skip


def refuse_worse(comparison: Comparison, accept: Accept, release: object) -> None:
    """Refuse a model that is worse for this user than the model named by ``accept``.

    Raises:
        WorseModelError: If the model is worse.
    """
    to_vendor, before = comparison.to_vendor, comparison.old
    if accept == "better-than-old" and comparison.worse:
        verdict = comparison_in_words(comparison, "the active model").removeprefix("It is ")
    elif accept == "better-than-vendor" and to_vendor is not None and to_vendor.worse:
        before = comparison.vendor
        losses = losses_in_words(comparison, to_vendor, before)
        verdict = f"worse for this user than the new model alone: {losses}"
    else:
        return
    advice = 'Wait for another release, or pass accept="always"'
    raise WorseModelError(
        f"{release}: {verdict}; nothing was installed. {advice}", before, comparison.carried
    )
