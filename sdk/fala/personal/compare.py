"""Compare the old, the vendor's new and the carried model on a user's examples."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from fala.errors import WorseModelError
from fala.model.losses import Floats
from fala.personal.gather import Space, gather
from fala.personal.refit import Refit, fit_rows
from fala.report import MIN_REAL, Comparison, Correlation, Difference
from fala.slots.folder import Folder
from fala.slots.snapshot import OpenSlot, Snapshot
from fala.solver.judge import can_judge

Measured = TypeVar("Measured")

#: The model that a new one must not be proven worse than, to be installed.
Accept: TypeAlias = Literal["always", "better-than-old", "better-than-vendor"]


class Sides:
    """A user's examples as rows of the old and of the new model.

    Args:
        old: The slot of the old model.
        new: The new model.
    """

    def __init__(self, old: OpenSlot, new: Refit) -> None:
        self._old, self._new = old, new
        reading = new.rows.reading
        self._rows = gather(reading, Space.of_slot(reading.store, old, None))

    def labelled(self) -> set[int]:
        """Ids of the labelled examples that have a row on both backbones."""
        return set(self._rows.labelled()) & set(self._new.rows.labelled())

    def encoded(self) -> set[int]:
        """Ids of the examples that both backbones have encoded."""
        return self._rows.encoded() & self._new.rows.encoded()

    @cached_property
    def _refitted(self) -> Refit:
        """The old model, fitted again to the current labels: its losses are not stored."""
        return fit_rows(self._rows, left_out_only=True)

    def measured(
        self, ids: Collection[int], measure: Callable[[Floats, Floats], Measured]
    ) -> dict[str, Measured] | None:
        """A measure of three models on some labelled examples, each left out, by model.

        The models are ``"old"``, the old personal model; ``"vendor"``, the vendor's own new one;
        and ``"carried"``, the personal model on the new backbone.

        Args:
            ids: The examples.
            measure: Called with labels and logits, (n, C).

        Returns:
            None where the old or the new model is not fitted.
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
        """Compare on the labelled examples that both backbones have encoded.

        Nothing is fitted if they are too few.
        """
        ids, releases, rows = self.encoded() & self.labelled(), self.releases(), self._new.rows
        # One link for all three, as the noise of two releases' ratings differs.
        link = rows.space.head.link
        enough = can_judge(rows.take(rows.training.labels, ids), link)
        losses = self.measured(ids, link.losses) if enough else None
        if losses is None:
            return Comparison(len(ids), releases=releases, measure=link.measure)
        scores = self.measured(ids, link.scores) or {}
        return Comparison(
            len(ids),
            **{name: float(loss.mean()) for name, loss in losses.items()},
            to_old=_difference(losses["carried"] - losses["old"]),
            to_vendor=_difference(losses["carried"] - losses["vendor"]),
            releases=releases,
            measure=link.measure,
            scores={name: values for name, values in scores.items() if values},
        )

    def releases(self) -> Correlation | None:
        """The correlation of the two vendor models, on encoded examples if there are enough.

        None where the logits of one are all the same.
        """
        encoded = self.encoded()
        real = len(encoded) >= MIN_REAL
        before, after = self._rows, self._new.rows
        ids = sorted(encoded if real else set(before.ids) & set(after.ids))
        logits = [rows.take(rows.training.vendor_logits(), ids) for rows in (before, after)]
        if not len(logits[0]) or logits[0].shape != logits[1].shape:  # the new release adds labels
            return None
        centred = after.space.head.link.centred
        old, new = (z - z.mean(axis=0) for z in map(centred, logits))
        norm = float(np.linalg.norm(old) * np.linalg.norm(new))
        return Correlation(float((old * new).sum() / norm), len(old), real) if norm else None


def compare_with_previous(folder: Folder, snapshot: Snapshot, last: Refit) -> Comparison | None:
    """Compare the active model with the one before the last replacement.

    None if there was no replacement, nothing is fitted, or the old release is deleted.

    Args:
        folder: The device's folder.
        snapshot: The task.
        last: The active model, as it was fitted.
    """
    previous = folder.previous(snapshot)
    replacements = folder.store_of(snapshot.adapter).slots.replacements()
    replacement = replacements.get(snapshot.active.record.name)
    if previous is None or last.fit is None or replacement is None:
        return None
    earlier = replacements.get(previous.record.name)
    if earlier is not None and earlier.generation > replacement.generation:
        return None
    return Sides(previous, last).compare()


def refuse_worse(comparison: Comparison, accept: Accept, release: object) -> None:
    """Refuse a model that is proven worse for this user.

    The leave-one-out losses on the user's labels decide. Labels are few, so the vendor models'
    logits of all examples are compared, too: a head fitted to reversed labels is refused, and an
    unrelated one unless the labels prove it better.

    Raises:
        WorseModelError: The model is worse.
    """
    advice = 'Wait for another release, or pass accept="always"'
    to_old = accept == "better-than-old"
    against = comparison.to_old if to_old else comparison.to_vendor
    before = comparison.old if to_old else comparison.vendor
    releases, proven_better = comparison.releases, against is not None and against.better
    if to_old and releases is not None:
        relation = "contradicts" if releases.contradicts else "does not agree with"
        if releases.contradicts or (releases.unrelated and not proven_better):
            raise WorseModelError(
                f"{release}: its vendor model {relation} that of the active release; nothing was "
                f"installed. Their logits of {releases.examples} of this user's examples "
                f"have a correlation of {releases.value:.2f}. {advice}",
                comparison.old,
                comparison.carried,
            )
    baseline = "the active model" if to_old else "the vendor's own"
    if against is None or before is None or comparison.carried is None or not against.worse:
        return
    measure = comparison.measure.capitalize()
    raise WorseModelError(
        f"{release}: worse for this user than {baseline}; nothing was installed. "
        f"{measure} of {comparison.labelled} labels, each left out: {comparison.carried:.3f} "
        f"against {before:.3f}, a difference of {against.mean:.3f} ± {against.margin:.3f}. "
        f"{advice}",
        before,
        comparison.carried,
    )


def _difference(losses: Floats) -> Difference:
    error = float(losses.std(ddof=1) / np.sqrt(len(losses)))
    return Difference(float(losses.mean()), error, len(losses))
