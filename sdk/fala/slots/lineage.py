"""Which replacement installed a slot, and what was known then."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass

from fala.slots.bundles import slots_of
from fala.store.store import Store

#: The setting that tells of the replacement that installed a slot; its name follows.
_REPLACEMENT = "replacement "
#: The setting that tells the generation of the last rollback.
_ROLLED_BACK = "rolled back"


@dataclass(frozen=True)
class Replacement:
    """What was known when a slot was installed; by default nobody can tell.

    Attributes:
        generation: The store's, then.
        last: The largest id of an example, then.
        time: When it was, in seconds since 1970 (UTC).
        rolled_back: Whether the slot before it has answered again since.
    """

    generation: int = -1
    last: float = math.inf
    time: float = math.inf
    rolled_back: bool = True


def note_replacement(store: Store, slot: str, generation: int) -> None:
    """Note that a slot is installed by a replacement. In a transaction."""
    store.set(_REPLACEMENT + slot, f"{generation} {store.last()} {time.time()!r}")


def note_rollback(store: Store, generation: int) -> None:
    """Note that the slot before the last replacement answers again. In a transaction."""
    store.set_own(_ROLLED_BACK, str(generation))


def replacements(store: Store) -> dict[str, Replacement]:
    """What replacement installed a slot, by name; none of earlier versions."""
    found: dict[str, Replacement] = {}
    for name in slots_of(store.adapter):
        told = (store.get(_REPLACEMENT + name) or "").split()
        with contextlib.suppress(ValueError, IndexError):
            rolled = int(store.get_own(_ROLLED_BACK) or -1)
            generation, last, moment = int(told[0]), int(told[1]), float(told[2])
            found[name] = Replacement(generation, last, moment, rolled > generation)
    return found
