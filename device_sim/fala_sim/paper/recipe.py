"""The paper's own recipe, for comparison in ``fala-replace --paper``.

Correlation clusters of the user's documents on the old embeddings (section 3.3) give a few
representatives. These pass through the new backbone, and their old logits are the targets of a
ridge regression for a personal diagonal matrix (equation 1). There is no bridge, no weight of a
word, no label in the fit, and nothing is shrunk to the vendor's model. The paper clusters on the
new embeddings, which costs it a forward pass for every document.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from fala.base.examples import Example, unique_texts
from fala.bundle.reading import Bundle
from fala.model.heads import Head, PersonalModel
from fala.selection.graph import UNLABELLED
from fala.selection.representatives import affordable, select
from fala_sim.paper.matrix import fit_matrix


@dataclass(frozen=True)
class PaperFit:
    """The result of the paper's recipe for one user, and its cost.

    Attributes:
        model: The new backbone's head with the personal matrix, without weights of words.
        clusters: Correlation clusters of the examples; 0 if the budget pays for all examples.
        queries: Strong queries of the clustering.
        forward_passes: Texts encoded by the new backbone.
        seconds: Wall time of clustering, forward passes and fit.
    """

    model: PersonalModel
    clusters: int
    queries: int
    forward_passes: int
    seconds: float

    @property
    def cost(self) -> dict[str, float]:
        """All fields except the model."""
        return {each.name: getattr(self, each.name) for each in fields(self)[1:]}


class Recipe:
    """The recipe from one release to another.

    Args:
        old: The user's release.
        new: The new release, with ``head``.
        head: Its head, whose weights of words are not used.
    """

    def __init__(self, old: Path, new: Path, head: Head) -> None:
        self._old, self._new = Bundle.open(old).backbone(), Bundle.open(new).backbone()
        self._head = head.without_words()

    def fit(
        self,
        examples: Sequence[Example],
        labels: Sequence[int | None],
        personal: PersonalModel,
        passes: int,
    ) -> PaperFit:
        """Fit one user's model; if no example is affordable, return the vendor's.

        Args:
            examples: The user's n examples.
            labels: The position of each label, (n,); None for an example without one.
            personal: The old personal model, whose logits are the targets.
            passes: Most forward passes.
        """
        texts = unique_texts(examples)
        # A device has these already: they cost neither passes nor seconds.
        embeddings = dict(zip(texts, self._old.encode(texts), strict=True))
        started = time.perf_counter()
        old = personal.head.inputs(examples, embeddings)
        classes = [UNLABELLED if label is None else label for label in labels]
        selection = select(old, classes, count=min(passes, len(examples)))
        ordered = [examples[index] for index in selection.order.tolist()]
        missing = [unique_texts([example]) for example in ordered]
        chosen = affordable(missing, passes)
        encoded = dict(zip(chosen, self._new.encode(chosen), strict=True)) if chosen else {}
        complete = [all(text in encoded for text in texts) for texts in missing]
        model = self._head.vendor_model()
        if any(complete):
            rows = selection.order[complete]
            chosen_examples = [examples[index] for index in rows.tolist()]
            targets = personal.logits(old[rows], personal.head.words(chosen_examples))
            inputs = self._head.inputs(chosen_examples, encoded)
            model = fit_matrix(self._head, inputs, logits=targets, prior="zero")
        clusters = int(selection.assignment.max()) + 1 if selection.queries else 0
        seconds = time.perf_counter() - started
        return PaperFit(model, clusters, selection.queries, len(chosen), seconds)
