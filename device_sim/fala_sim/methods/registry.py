"""All methods by name, for everything that runs, compares, draws or lists them.

A new method is a class in its own file in this folder; its class attributes describe it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fala import DataError
from fala_sim.found import found
from fala_sim.methods.fala_shipped import Shipped
from fala_sim.methods.method import Method
from fala_sim.methods.unfitted import Global, GlobalWords


def _classes(of: type[Any]) -> Iterator[type[Method]]:
    for method in of.__subclasses__():
        if "name" in vars(method):
            yield method
        yield from _classes(method)


_MODULES = list(found(__name__.rpartition(".")[0]))

#: The classes by name, in the order of tables. Those that train load torch when they are used.
METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in sorted(_classes(Method), key=lambda method: (method.row, method.name))
}

#: The method that tables and plots highlight: FaLA as it is shipped.
SHIPPED = Shipped.name

#: Those that train the transformer.
TRAINED = tuple(name for name, method in METHODS.items() if method.trained)
#: Ours as the SDK ships it, by budget.
OURS = tuple(name for name, method in METHODS.items() if method.ours)
#: Those without settings.
FIXED = tuple(name for name, method in METHODS.items() if not method.tuned)
#: Those compared with ours.
BASELINES = tuple(name for name, method in METHODS.items() if method.baseline)
#: Those with a row in the headline.
HEADLINE = tuple(name for name, method in METHODS.items() if method.headline)
#: Those whose vendor model is the one with words.
WITH_WORDS = tuple(name for name, method in METHODS.items() if method.with_words)
#: Those that support ratings and tags, too.
ALL_TASKS = tuple(name for name, method in METHODS.items() if method.all_tasks)
#: The unchanged vendor's model: with words, or without if no record has one with words.
VENDOR = (GlobalWords.name, Global.name)


def find_method(name: str) -> Method:
    """A method by name.

    Raises:
        DataError: If there is none of that name.
    """
    if name not in METHODS:
        raise DataError(f"no method {name!r}; one of {', '.join(METHODS)}")
    return METHODS[name]()
