"""What a device recalls of its examples, as rows to fit to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.examples import CLASSIFICATION, Example, texts_of
from fala.model.bridge import Bridge
from fala.model.heads import Head, PersonalModel, Vectors
from fala.solver.blend import Inputs, Rows

Embeddings = Mapping[str, Vectors]


@dataclass(frozen=True)
class Source:
    """Embeddings of an earlier backbone, with the bridge from it."""

    bridge: Bridge
    embeddings: Embeddings


@dataclass(frozen=True)
class Recalled:
    """Examples whose inputs from a backbone are known or estimated.

    Attributes:
        positions: Which of the examples that were asked for, shape (m,).
        examples: The m examples.
        rows: What is known of them.
        missing: The texts of each that the backbone has not seen, none twice; empty for an
            example whose input is real.
    """

    positions: NDArray[np.int64]
    examples: Sequence[Example]
    rows: Rows
    missing: Sequence[Sequence[str]]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which examples have a label, shape (m,)."""
        return np.logical_not(np.isnan(self.rows.labels).any(axis=1))

    @property
    def telling(self) -> NDArray[np.bool_]:
        """Which examples have a label or a target, shape (m,)."""
        return self.labelled | np.logical_not(np.isnan(self.rows.targets).any(axis=1))


def reachable(
    bridges: Mapping[str, Bridge], earlier: Mapping[str, Bridge], active: str
) -> list[Bridge]:
    """The bridges to a new backbone, also those that go over the active one.

    Args:
        bridges: The new bundle's, by source.
        earlier: The active bundle's, by source.
        active: Digest of the active backbone.

    Returns:
        Bridges of distinct sources, that which leaves most unexplained first.
    """
    found = dict(bridges)
    if active in bridges:
        for source, bridge in earlier.items():
            found.setdefault(source, bridge.then(bridges[active]))
    return sorted(found.values(), key=lambda bridge: -float(bridge.variance.sum()))


def recall(
    examples: Sequence[Example],
    labels: NDArray[np.float64],
    head: Head,
    real: Embeddings,
    sources: Sequence[Source],
    view: tuple[PersonalModel, Embeddings] | None,
    personal: NDArray[np.float64],
) -> Recalled:
    """Gather rows from real embeddings where there are any, else from mapped ones.

    An example takes part if each of its texts has an embedding that is real or can be mapped, and
    the view knows them all.

    Args:
        examples: n examples.
        labels: Class shares, shape (n, C), NaN where there is none.
        head: The head of the backbone in question.
        real: That backbone's embeddings.
        sources: Earlier backbones' embeddings with bridges to it; the last that knows a text
            counts.
        view: The old view's model, and its backbone's embeddings.
        personal: What was personal in older logits, shape (n, C), NaN for nothing: asked for where
            there is no label, see ``fala.personal.carried_logits``.
    """
    known = set(real).union(*(source.embeddings for source in sources))
    if view is not None:
        known &= set(view[1])
    positions = [
        position
        for position, example in enumerate(examples)
        if all(text in known for text in texts_of(example))
    ]
    chosen = [examples[position] for position in positions]
    texts = dict.fromkeys(text for example in chosen for text in texts_of(example))
    seen = None
    if view is not None:
        model, embeddings = view
        seen = model.logits(model.head.inputs(chosen, embeddings)).astype(np.float64)
    inputs = _inputs(chosen, texts, head, real, sources)
    targets = inputs.logits(head.weight) + head.bias + personal[positions]
    rows = Rows(inputs, labels[positions], seen, targets)
    missing = [
        [text for text in dict.fromkeys(texts_of(example)) if text not in real]
        for example in chosen
    ]
    return Recalled(np.array(positions, dtype=np.int64), chosen, rows, missing)


def _inputs(
    examples: Sequence[Example],
    texts: Mapping[str, None],
    head: Head,
    real: Embeddings,
    sources: Sequence[Source],
) -> Inputs:
    last = sources[-1] if sources else None
    if (
        head.task == CLASSIFICATION
        and last is not None
        and examples
        and not any(text in real for text in texts)
        and all(text in last.embeddings for text in texts)
    ):
        # All documents cross the same bridge: the old coordinates say all there is.
        old = np.stack([last.embeddings[str(example)] for example in examples])
        ones = np.ones((len(old), 1), dtype=np.float32)
        basis = np.vstack([last.bridge.matrix, last.bridge.offset])
        return Inputs(np.hstack([old, ones]), basis)
    return Inputs(head.inputs(examples, mapped(real, sources, texts)))


def mapped(
    real: Embeddings, sources: Sequence[Source], texts: Iterable[str] | None = None
) -> Embeddings:
    """Real embeddings, and estimates over bridges of those that are missing, by text.

    Args:
        real: A backbone's embeddings.
        sources: Earlier backbones' embeddings with bridges to it; the last that knows a text
            counts.
        texts: Those that are wanted; None for all.
    """
    wanted = None if texts is None else set(texts)
    estimates: dict[str, Vectors] = {}
    for source in sources:
        here = [
            text
            for text in source.embeddings
            if text not in real and (wanted is None or text in wanted)
        ]
        if here:
            vectors = source.bridge.map(np.stack([source.embeddings[text] for text in here]))
            estimates.update(zip(here, vectors, strict=True))
    return {**estimates, **real} if estimates else real
