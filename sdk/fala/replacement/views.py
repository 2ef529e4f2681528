"""Earlier models that go on answering beside a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fala.backbones import LazyBackbone
from fala.bundle.reading import Bundle
from fala.model.bridge import Bridge, reachable
from fala.model.heads import Head, PersonalModel
from fala.model.view import View
from fala.store.installed import KeptView
from fala.store.open_slot import OpenSlot

#: Whether the old backbone's view goes on; see ``Device.replace``.
KeepOld = Literal["auto", "always", "never"]


@dataclass(frozen=True, eq=False)
class Kept:
    """An earlier model that is to answer as a view.

    Attributes:
        bundle: Its release.
        lazy: Its backbone.
        model: The model.
        bridges: Bridges that lead to its backbone, for what it has not seen itself.
    """

    bundle: Bundle
    lazy: LazyBackbone
    model: PersonalModel
    bridges: Sequence[Bridge] = ()

    @property
    def backbone(self) -> str:
        """Digest of its backbone."""
        return self.bundle.backbone_digest

    @property
    def personal(self) -> bool:
        """Whether it is more than its vendor's own model."""
        return not self.model.is_vendor

    def weighed(self, weight: NDArray[np.floating]) -> KeptView:
        """The view with a weight (C,)."""
        view = View(self.model, np.asarray(weight, dtype=np.float32))
        return KeptView(self.bundle, view, self.lazy)


def kept_view(now: OpenSlot) -> Kept | None:
    """The view that a slot has, also one whose weight is 0."""
    lazy = now.answering.view_backbone
    if now.view is None or now.view_bundle is None or lazy is None:
        return None
    bridges = reachable(now.view_bundle.bridges(), {}, "")
    return Kept(now.view_bundle, lazy, now.view.model, bridges)


def view_to_keep(now: OpenSlot, keep_old: KeepOld, head: Head, *, labelled: bool) -> Kept | None:
    """The view that goes on: the active backbone's, or the one that it has beside it.

    Args:
        now: The slot that is to be replaced.
        keep_old: See ``Device.replace``.
        head: The new head; a view of other labels has no say in its logits.
        labelled: Whether the user gave any label.
    """
    if keep_old == "never" or now.model.head.labels != head.labels:
        return None
    # Beside a lexical view word vectors say next to nothing more (.001 AUC).
    needless = keep_old == "auto" and head.lexical is not None and labelled
    if needless:
        return None
    if now.static or keep_old == "always":
        # With labels what is personal is fitted anew; without, the old model alone knows it.
        # Its words are the new head's, too: a view is of embeddings.
        head = now.model.head.without_words()
        weight, bias = (head.weight, head.bias) if labelled else (now.model.weight, now.model.bias)
        model = PersonalModel(head, weight, bias)
        bridges = reachable(now.bundle.bridges(), {}, "")
        return Kept(now.bundle, now.answering.backbone, model, bridges)
    return kept_view(now)
