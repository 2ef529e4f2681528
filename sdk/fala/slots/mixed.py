"""What examples a prompt was made of: where one of them is forgotten, the prompt goes, too.

A mixture is made of their labels. A compiled prompt is made of their texts: its keys and values are
a function of them, and tell as much of them as embeddings of each of their tokens would. They lie
in a table of their own, encrypted where the store is, and a device that keeps no texts never has
any.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from fala.store.store import Store

#: The setting that tells on how many labels a release's prompts were tried last.
TRIED = "prompts tried"
#: The setting that tells the examples of every mixture, by the provenance of its embeddings.
_MIXED = "prompts mixed"


def note_mixed(store: Store, backbone: str, by: Sequence[int]) -> None:
    """Note what a prompt is made of; what is no slot's any more is dropped.

    Args:
        store: The device's.
        backbone: The provenance of the embeddings that are made with it.
        by: The ids of the examples.
    """
    with store.transaction():
        used = {store.slot(name).backbone for name in store.slots()}
        known = {name: ids for name, ids in _known(store).items() if name in used}
        store.set_own(_MIXED, json.dumps({**known, backbone: [*by]}))


def mixed_by(store: Store, backbone: str, gone: Collection[int]) -> bool:
    """Whether a prompt was made of one of some examples, or nobody can tell.

    Args:
        store: The device's.
        backbone: See ``note_mixed``.
        gone: The ids of the examples.
    """
    ids = _known(store).get(backbone)
    return not isinstance(ids, list) or not set(gone).isdisjoint(ids)


def _known(store: Store) -> dict[str, object]:
    try:
        found = json.loads(store.get_own(_MIXED) or "{}")
    except ValueError:  # damaged: nobody can tell
        return {}
    return found if isinstance(found, dict) else {}
