"""A personal model on its backbone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.backbones import LazyBackbone
from fala.base.errors import BundleFormatError, UsageError
from fala.base.examples import MATCHING, Example, Match, unique_texts
from fala.model.heads import PersonalModel, Vectors
from fala.model.labels import HeadLabel, as_array
from fala.model.losses import Floats


@dataclass(frozen=True, eq=False)
class ActiveModel:
    """An immutable snapshot of the parts of a prediction.

    Attributes:
        model: The personal model.
        backbone: Its backbone, loaded at its first use.
    """

    model: PersonalModel
    backbone: LazyBackbone

    def logits(self, examples: Sequence[Example]) -> Vectors:
        """Logits of n examples, shape (n, C).

        Raises:
            BundleFormatError: A logit is not finite: the release's numbers are too large.
        """
        z = self._logits(examples)
        if not np.isfinite(z).all():
            raise BundleFormatError("the release's logits are not finite")
        return z

    def _logits(self, examples: Sequence[Example]) -> Vectors:
        texts = unique_texts(examples)
        embeddings = dict(zip(texts, self.backbone.encode(texts), strict=True))
        head = self.model.head
        with np.errstate(over="ignore", invalid="ignore"):  # overflow becomes infinite
            z = self.model.logits(head.inputs(examples, embeddings), head.words(examples))
        return np.asarray(z, dtype=np.float32)

    def probe(self, texts: Sequence[str]) -> Vectors:
        """Logits of some texts, (n, C), finite or not.

        For a matcher each text is a candidate, and its own history.
        """
        if self.model.head.task == MATCHING:
            return self._logits([Match((text,), text) for text in texts])
        return self._logits(list(texts))

    def predict(self, examples: Sequence[Example]) -> NDArray[Any]:
        """Return the most probable label of every example, or its set of tags, or value, (n,)."""
        head = self.model.head
        return head.link.predict(self.logits(examples), head.labels)

    def predict_proba(self, examples: Sequence[Example]) -> Floats:
        """Probabilities of labels or tags, (n, number of labels).

        Raises:
            UsageError: There is a rating, which has none.
        """
        link = self.model.head.link
        if link.kind == "rating":
            raise UsageError("a rating has no probabilities; predict returns its values")
        return link.values(self.logits(examples))

    def predict_above(
        self, examples: Sequence[Example], positive: HeadLabel, threshold: float
    ) -> NDArray[Any]:
        """Return one of two labels where it is probable enough, else the other, (n,).

        Args:
            examples: n examples.
            positive: The label that the threshold is for.
            threshold: A probability.
        """
        labels = self.model.head.labels
        column = labels.index(positive)
        decided = self.predict_proba(examples)[:, column] > threshold
        return as_array(labels)[np.where(decided, column, 1 - column)]
