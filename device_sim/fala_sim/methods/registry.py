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

#: The method that tables and plots point out: FaLA as it is shipped.
SHIPPED = Shipped.name

#: Those that train the transformer.
TRAINED = tuple(name for name, method in METHODS.items() if method.trained)
#: Ours as the SDK ships it, by budget.
OURS = tuple(name for name, method in METHODS.items() if method.ours)
#: Those with nothing to choose.
FIXED = tuple(name for name, method in METHODS.items() if not method.tuned)
#: Those that ours is compared with.
BASELINES = tuple(name for name, method in METHODS.items() if method.baseline)
#: Those with a row in the headline.
HEADLINE = tuple(name for name, method in METHODS.items() if method.headline)
#: Those whose model of the vendor's is the one with words.
WITH_WORDS = tuple(name for name, method in METHODS.items() if method.with_words)
#: The vendor's model as it comes: with words, or without where no record has one with words.
VENDOR = (GlobalWords.name, Global.name)


def find_method(name: str) -> Method:
    """A method by name.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in METHODS:
        raise DataError(f"no method {name!r}; one of {', '.join(METHODS)}")
    return METHODS[name]()
