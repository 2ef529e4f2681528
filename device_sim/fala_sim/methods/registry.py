"""All methods by name."""

from __future__ import annotations

import importlib

from fala import DataError
from fala_sim.methods.method import Method

#: Module and class by name, in the order of tables. Those that train load torch when they are used.
CATALOGUE = {
    "old": ("old", "Old"),
    "global": ("global_", "Global"),
    "full": ("full", "Full"),
    "adapter": ("adapter", "Adapter"),
    "lora": ("lora", "Lora"),
    "top": ("top", "Top"),
    "logistic": ("logistic", "Logistic"),
    "knn": ("knn", "Knn"),
    "procrustes": ("procrustes", "Procrustes"),
    "affine": ("affine", "Affine"),
    "fala-paper": ("fala_paper", "FalaPaper"),
    "fala-instant": ("fala_shipped", "Instant"),
    "fala": ("fala_shipped", "Shipped"),
    "fala-all": ("fala_shipped", "Everything"),
}

#: Those that train the transformer.
TRAINED = ("full", "adapter", "lora")
#: Ours as the SDK ships it, by budget.
OURS = ("fala-instant", "fala", "fala-all")
#: Those with nothing to choose.
FIXED = ("old", "global", *OURS)


def find_method(name: str) -> Method:
    """A method by name.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in CATALOGUE:
        raise DataError(f"no method {name!r}; one of {', '.join(CATALOGUE)}")
    module, cls = CATALOGUE[name]
    found = getattr(importlib.import_module(f"fala_sim.methods.{module}"), cls)()
    if not isinstance(found, Method):
        raise TypeError(f"{module}.{cls} is no method")
    return found
