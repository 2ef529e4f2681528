"""All methods by name: whatever runs, compares, draws or lists methods asks here.

A new method is a class in a file of its own and a name in ``METHODS``; what sets it apart from
others, its class says.
"""

from __future__ import annotations

from fala import DataError
from fala_sim.methods.adapter import Adapter
from fala_sim.methods.affine import Affine
from fala_sim.methods.fala_paper import FalaPaper
from fala_sim.methods.fala_shipped import Everything, Instant, Shipped
from fala_sim.methods.full import Full
from fala_sim.methods.global_ import Global
from fala_sim.methods.global_words import GlobalWords
from fala_sim.methods.knn import Knn
from fala_sim.methods.logistic import Logistic
from fala_sim.methods.lora import Lora
from fala_sim.methods.method import Method
from fala_sim.methods.old import Old
from fala_sim.methods.procrustes import Procrustes
from fala_sim.methods.top import Top
from fala_sim.methods.words import Words

_CLASSES: tuple[type[Method], ...] = (
    Old, Global, GlobalWords, Words, Full, Adapter, Lora, Top, Logistic, Knn, Procrustes, Affine,
    FalaPaper, Instant, Shipped, Everything,
)  # fmt: skip

#: The classes by name, in the order of tables. Those that train load torch when they are used.
METHODS: dict[str, type[Method]] = {method.name: method for method in _CLASSES}

#: Those that train the transformer.
TRAINED = tuple(name for name, method in METHODS.items() if method.trained)
#: Ours as the SDK ships it, by budget.
OURS = tuple(name for name, method in METHODS.items() if method.ours)
#: Those with nothing to choose.
FIXED = tuple(name for name, method in METHODS.items() if not method.tuned)


def find_method(name: str) -> Method:
    """A method by name.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in METHODS:
        raise DataError(f"no method {name!r}; one of {', '.join(METHODS)}")
    return METHODS[name]()
