"""One user at the moment when the vendor's new backbone arrives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.labels import HeadLabel
from fala_sim.data.users import User, UserExample
from fala_sim.prepare.measured import LogitArray, MeasuredRelease
from fala_sim.records.meter import Meter


class DeviceEncoding(Protocol):
    """The new backbone on a user's device; every text costs a forward pass."""

    def __call__(self, texts: Sequence[str], meter: Meter) -> dict[str, Vectors]:
        """Return embeddings (d,) by text, counted in the stage ``"forward"``."""


@dataclass(frozen=True)
class Situation:
    """The input of a method.

    Attributes:
        user: The user whose model is replaced.
        old: The old backbone with the vendor's plain head, as in papers.
        installed: The old backbone as FaLA's devices have it, with a head on embeddings and
            n-grams.
        new: The new backbone with the vendor's plain head, from which every peer starts.
        shipped: The new backbone as FaLA's devices get it, with the vendor's head on embeddings and
            n-grams, a bridge, and prior variances chosen on public annotators.
        personal: The old personal model without lexical features, fitted by a device's ``learn`` on
            all train examples.
        transformer: Hugging Face folder of the new backbone, for training; None if there is only a
            bundle.
        encode: The new backbone on the device.
        seed: Seed of every random choice.
        meter: Counts the cost of this replacement.
        words: The vendor's head on n-grams alone, whose one dense input is 0; None if not needed.
    """

    user: User
    old: MeasuredRelease
    installed: MeasuredRelease
    new: MeasuredRelease
    shipped: MeasuredRelease
    personal: PersonalModel
    transformer: Path | None
    encode: DeviceEncoding
    seed: int
    meter: Meter = field(default_factory=Meter)
    words: Head | None = None

    @property
    def labels(self) -> tuple[HeadLabel, ...]:
        """The labels, in the order of the logits."""
        return self.new.head.labels

    @property
    def exclusive(self) -> bool:
        """Whether an example has one of several labels, rather than a rating or tags."""
        return self.new.head.link.kind == "labels"

    def label_shares(self) -> NDArray[np.float64]:
        """Return the train labels as class shares, shape (n, C); C is 1 for two classes."""
        return self.new.head.label_shares(self.user.train_labels)

    def old_logits(self, examples: Sequence[UserExample] | None = None) -> LogitArray:
        """Return the old personal model's logits (n, C), by default of the train examples."""
        return self.old.logits(self.personal, self.user.train if examples is None else examples)
