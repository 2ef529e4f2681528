"""What the store's rows hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.errors import DataError
from fala.examples import Example
from fala.model.links import PerTag, stored_tags

#: What a row's weights are: omega; the personal matrix theta of the first two versions; or of no
#: use, since texts were read with a mixture of prompts: the vendor's model takes their place.
OMEGA, THETA, UNUSABLE = "omega", "theta", "unusable"


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
class Replacement:
    """The replacement that installed a slot; by default nothing is known of it.

    Attributes:
        generation: The task's by then.
        data: The task's count of changes of data that the old logits were made at.
        fit_data: The one that the old model was fitted to; None where it never was.
    """

    generation: int = -1
    data: float = math.inf
    fit_data: float | None = math.inf


@dataclass(frozen=True)
class Trial:
    """The trial of a slot.

    Attributes:
        slot: The slot. While the other one is active the trial rests.
        began: The generation that it was installed at, which identifies the trial.
        tries: Of this trial, in a row, that did not end.
        answered: Examples answered so far, but for what open devices still hold in memory.
    """

    slot: str
    began: int
    tries: int = 0
    answered: int = 0


@dataclass(frozen=True, eq=False)
class LexicalRecord:
    """The weights of n-grams that are the user's own: those of the others are the vendor's.

    Attributes:
        buckets: Shape (m,), uint16, ascending.
        weight: Their weights, float32, shape (C, m).
    """

    buckets: NDArray[np.uint16]
    weight: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SlotRecord:
    """A slot's personal model.

    Attributes:
        name: The slot.
        bundle: SHA-256 of the bundle's manifest.
        backbone: The provenance of its embeddings: the digest of its backbone, with that of the
            user's prompt where there is one.
        weight: Its weights, float32, shape (C, d).
        bias: Shape (C,).
        model: Digest of backbone, head and weights, the provenance of logits.
        teacher: Digest of the personal model whose stored logits it was fitted to, if any.
        teacher_vendor: Digest of that one's vendor model, whose logits are stored beside them.
        threshold: Logit above which the second of two labels is decided; of tags one each.
        labels: The device's order of the labels; empty for the head's own.
        form: What ``weight`` is: omega; theta, or of no use, in a store of an earlier version.
        lexical: The user's own weights of n-grams; None where the head has no lexical view.
        loss: Its cross-entropy on the labelled examples, each left out; None where it is not known.
        prompt: What the user's texts were compiled to, behind which others are read (see
            ``fala.bundle.prompts.compiled``); None without a prompt.
    """

    name: str
    bundle: str
    backbone: str
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    model: str
    teacher: str | None
    teacher_vendor: str | None
    threshold: PerTag = 0.0
    labels: tuple[str, ...] = ()
    form: str = OMEGA
    lexical: LexicalRecord | None = None
    loss: float | None = None
    prompt: bytes | None = None

    @property
    def teachers(self) -> tuple[str | None, str | None]:
        """Digests of the personal model whose logits it was fitted to, and of its vendor's."""
        return self.teacher, self.teacher_vendor


@dataclass(frozen=True)
class FitRecord:
    """What a slot's personal model was fitted to: whether a label can be added to it.

    Attributes:
        data: The store's count of changes of examples and labels that it is up to.
        fitted: How many examples the last fit of all had.
        further: How many were added since.
        decision: Which of the compared models it is: see ``fala.solver.judge``.
        trust: How far it goes towards the full fit; of tags one each.
        scales: The blocks' scales.
    """

    data: int
    fitted: int
    further: int
    decision: str
    trust: PerTag
    scales: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StoredExample:
    """An example that a device keeps.

    Attributes:
        id: Its number in the store.
        example: A text, or a ``Match``; None on a device that keeps no texts.
        label: Its label, None where the user gave none; of tags a list in JSON.
        added: When it was first kept, in seconds since 1970 (UTC); None from earlier versions.
        labelled: When its label was given; None without one, or from earlier versions.
        adapter: The task that it is of, by its adapter; empty for the device's own.
    """

    id: int
    example: Example | None
    label: str | None
    added: float | None = None
    labelled: float | None = None
    adapter: str = ""

    @property
    def tags(self) -> frozenset[str] | None:
        """The set of its tags; None without one, or where labels exclude one another."""
        return None if self.label is None else stored_tags(self.label)

    @property
    def known(self) -> Example:
        """What the store knows it by: the example, of names where texts are not kept."""
        if self.example is None:
            raise DataError(f"the texts of example {self.id} are not kept")
        return self.example
