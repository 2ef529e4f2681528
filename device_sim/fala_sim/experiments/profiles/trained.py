"""A method that trains the transformer, on a few documents within a device's limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fala import Bundle, DataError, Head
from fala_sim.encoding import DeviceEncoder
from fala_sim.experiments.profiles.rows import read_rows
from fala_sim.methods.registry import TRAINED, find_method
from fala_sim.methods.trained import Trained
from fala_sim.situation import Release, Situation, User

#: Two batches: enough for gradients and the optimizer's state, which is what memory is needed for.
DOCUMENTS = 32


def train(job: dict[str, Any], tell: Callable[..., None], at: Callable[[str], None]) -> None:
    """Train for one epoch on the user's first documents.

    Args:
        job: As ``fala_sim.experiments.profiles.limited`` is given it; ``work`` names the method.
        tell: Told what was measured.
        at: Told what begins.

    Raises:
        DataError: If the method trains no transformer, or there is none to train.
    """
    method = find_method(job["work"])
    if not isinstance(method, Trained):
        raise DataError(
            f"within a device's limits are run 'replace' and what trains: {', '.join(TRAINED)}"
        )
    examples, labels = read_rows(Path(job["rows"]))
    examples, labels = examples[:DOCUMENTS], labels[:DOCUMENTS]
    old, new = (_release(Path(job[name])) for name in ("old", "new"))
    folder = job["transformer"]
    situation = Situation(
        user=User("user", examples, labels, (), ()),
        old=old,
        new=new,
        shipped=new,  # nor at this
        personal=old.head.vendor_model(),  # training does not look at it
        transformer=None if folder is None else Path(folder),
        encode=DeviceEncoder(new),
        seed=job["seed"],
    )
    at("train")
    rates: Sequence[float] = method.rates
    method.fit(situation, {"learning_rate": rates[len(rates) // 2], "epochs": 1})
    tell("measured", cost=situation.meter.fields(), documents=len(examples))


def _release(path: Path) -> Release:
    bundle = Bundle.open(path)
    head: Head | None = bundle.head()
    if head is None:
        raise DataError(f"{path}: a backbone without a head; a device needs a release")
    return Release(bundle.manifest.name, path, head, {}, {})
