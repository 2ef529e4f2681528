"""The records in the store's rows."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.errors import DataError
from fala.examples import Example
from fala.model.labels import stored_tags
from fala.model.links import PerTag


@dataclass(frozen=True)
class Version:
    """Identifies a snapshot of a task.

    Attributes:
        generation: Counts the changes of the active model.
        data: Counts the changes of examples and labels.
    """

    generation: int
    data: int


@dataclass(frozen=True)
class TaskState:
    """Which slots a task has.

    Attributes:
        version: The task's version.
        slot: The name of the active slot.
        previous: The one to roll back to; None without one.
        to_fit: Whether the active model is to be fitted to labels that are newer than its fit.
        positive: The label that ranking and thresholds are about; None is the release's.
    """

    version: Version
    slot: str
    previous: str | None
    to_fit: bool
    positive: str | None


@dataclass(frozen=True)
class Replacement:
    """The replacement that installed a slot; the defaults are those of an unknown one.

    Attributes:
        generation: The task's, after it.
        data: The task's count of data changes at which the old logits were computed.
        fit_data: The count at which the old model was fitted; None if it never was.
    """

    generation: int = -1
    data: float = math.inf
    fit_data: float | None = math.inf


@dataclass(frozen=True)
class Trial:
    """The trial of a slot.

    Attributes:
        slot: The slot. The trial pauses while the other slot is active.
        began: The generation that it was installed at, which identifies the trial.
        tries: Tries in a row that did not end.
        predictions: Predictions so far, except those that open devices still hold in memory.
    """

    slot: str
    began: int
    tries: int = 0
    predictions: int = 0


@dataclass(frozen=True, eq=False)
class LexicalRecord:
    """The n-gram weights that differ from the vendor's.

    Attributes:
        buckets: Shape (m,), uint16, ascending.
        weight: Their weights, float32, shape (C, m).
    """

    buckets: NDArray[np.uint16]
    weight: NDArray[np.float32]


@dataclass(frozen=True)
class FitRecord:
    """The fit of a slot's personal model, to which further labels can be added.

    Attributes:
        data: The store's count of changes of examples and labels that it includes.
        fitted: How many examples the last full fit had.
        further: How many were added since.
        decision: Which of the compared models it is: see ``fala.solver.judge``.
        trust: Its share of the full fit; of tags one each.
        scales: The blocks' scales.
    """

    data: int
    fitted: int
    further: int
    decision: str
    trust: PerTag
    scales: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class SlotRecord:
    """A slot's personal model.

    Attributes:
        name: The slot.
        bundle: SHA-256 of the bundle's manifest.
        backbone: The digest of its backbone, the provenance of its embeddings.
        weight: Its weights omega, float32, shape (C, d).
        bias: Shape (C,).
        model: Digest of backbone, head and weights, the provenance of logits.
        teachers: Digests of the personal model whose stored logits it was fitted to, and of that
            one's vendor model, whose logits are stored beside them; None without any.
        threshold: Logit above which the second of two labels is decided; of tags one each.
        labels: The labels, in the device's order.
        lexical: The user's own weights of n-grams; None where the head has no lexical view.
        loss: Its leave-one-out cross-entropy on the labelled examples; None if unknown.
        fit: The record of its fit; None if it is unknown.
    """

    name: str
    bundle: str
    backbone: str
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    model: str
    labels: tuple[str, ...]
    teachers: tuple[str, str] | None = None
    threshold: PerTag = 0.0
    lexical: LexicalRecord | None = None
    loss: float | None = None
    fit: FitRecord | None = None


@dataclass(frozen=True, eq=False)
class Remembered:
    """What was stored.

    Attributes:
        ids: The examples' ids.
        new_texts: The names of texts that the store did not have.
    """

    ids: list[int]
    new_texts: Collection[str]


@dataclass(frozen=True, slots=True)
class StoredExample:
    """An example that a device keeps.

    Attributes:
        id: Its number in the store.
        example: A text, or a ``Match``; None on a device that keeps no texts.
        label: Its label, None without one; of tags a list in JSON.
        added: When it was first stored, in seconds since 1970 (UTC).
        labelled: When its label was stored; None without one.
        adapter: Its task, by the adapter; empty for the device's own.
    """

    id: int
    example: Example | None
    label: str | None
    added: float
    labelled: float | None = None
    adapter: str = ""

    @property
    def tags(self) -> frozenset[str] | None:
        """The set of its tags; None without one, or where labels exclude one another."""
        return None if self.label is None else stored_tags(self.label)

    @property
    def stored(self) -> Example:
        """The example as stored: with names for texts where texts are not kept."""
        if self.example is None:
            raise DataError(f"the texts of example {self.id} are not kept")
        return self.example
