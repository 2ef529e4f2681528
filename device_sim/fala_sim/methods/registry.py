"""All methods by name, for everything that runs, compares, draws or lists them.

A new method is a class in its own file in this folder; its class attributes describe it. A method
in another file is added by ``add``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from fala import DataError
from fala_sim.data.found import found
from fala_sim.methods.fala_shipped import Shipped
from fala_sim.methods.method import Method
from fala_sim.methods.method_file import MethodFile
from fala_sim.methods.unfitted import Global, GlobalWords

Result = TypeVar("Result")


class _Names(Collection[str]):
    """Names of the methods with a property, in the order of tables, including those of ``add``."""

    def __init__(self, has: Callable[[type[Method]], bool]) -> None:
        self._has = has

    def __iter__(self) -> Iterator[str]:
        return (name for name, method in METHODS.items() if self._has(method))

    def __contains__(self, name: object) -> bool:
        return any(each == name for each in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _classes(of: type[Any]) -> Iterator[type[Method]]:
    for method in of.__subclasses__():
        if "name" in vars(method):
            yield method
        yield from _classes(method)


_MODULES = list(found(__name__.rpartition(".")[0]))

#: The classes by name, in the order of tables. The methods that train load torch on their first
#: use.
METHODS: dict[str, type[Method]] = {}
#: The files of the methods that ``add`` added, by the method's name.
FILES: dict[str, MethodFile] = {}


def _register(methods: Iterable[type[Method]]) -> None:
    ordered = sorted([*METHODS.values(), *methods], key=lambda method: (method.row, method.name))
    METHODS.clear()
    METHODS.update({method.name: method for method in ordered})


_register(_classes(Method))

#: The method that tables and plots highlight: FaLA as it is shipped.
SHIPPED = Shipped.name

#: The methods that train the transformer.
TRAINED = _Names(lambda method: method.trained)
#: FaLA as the SDK ships it, by budget.
OURS = _Names(lambda method: method.ours)
#: The methods without settings.
FIXED = _Names(lambda method: not method.tuned)
#: The methods with which FaLA is compared.
BASELINES = _Names(lambda method: method.baseline)
#: The methods with a row in the headline.
HEADLINE = _Names(lambda method: method.headline)
#: The methods whose vendor model has lexical features.
WITH_WORDS = _Names(lambda method: method.with_words)
#: The methods that also support ratings and tags.
ALL_TASKS = _Names(lambda method: method.all_tasks)
#: The unchanged vendor model: with lexical features, or without them if no record has it with them.
VENDOR = (GlobalWords.name, Global.name)


def find_method(name: str) -> Method:
    """Return the method with this name.

    Raises:
        DataError: There is no method with this name.
    """
    if name not in METHODS:
        raise DataError(
            f"no method {name!r}; one of {', '.join(METHODS)}, or the method of a file "
            "(--method FILE.py)"
        )
    return METHODS[name]()


def add(file: MethodFile) -> str:
    """Add the method of a file, and return its name; a file that was added is not run again.

    Raises:
        DataError: The file does not define one method, or a method of its name is registered.
    """
    for name, added in FILES.items():
        if added == file:
            return name
    method = file.method()
    if method.name in METHODS:
        raise DataError(
            f"{file.name}: there is already a method {method.name!r}; give this one another name"
        )
    _register([method])
    FILES[method.name] = file
    return method.name


def with_methods(files: Sequence[MethodFile], job: Callable[[], Result]) -> Result:
    """Call a job with the methods of some files, which its process may not have."""
    for file in files:
        add(file)
    return job()
