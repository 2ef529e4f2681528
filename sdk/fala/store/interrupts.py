"""Context managers that release what they hold wherever an interrupt comes (Ctrl-C, a signal).

Python runs a signal's handler after a call, and when a function begins. So an interrupt may come
after ``__enter__`` has taken a resource, or before the first statement of ``__exit__``, where no
``finally`` helps. The traceback would hold the generator of ``contextlib.contextmanager``, and the
generator its lock, for as long as the app keeps the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast
from weakref import ref

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


def interruptible(
    function: Callable[_Arguments, Iterator[_Value]],
) -> Callable[_Arguments, AbstractContextManager[_Value]]:
    """Make a context manager from a generator, as ``contextlib.contextmanager`` does.

    What the generator holds has to be released by ``with`` and an object written in C (a lock, a
    connection), or by the first call of a ``finally``, to a function written in C, because no
    interrupt can divide these.
    """

    @wraps(function)
    def manager(
        *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> AbstractContextManager[_Value]:
        return cast(AbstractContextManager[_Value], _Block(function(*args, **kwargs)))

    return manager


class _Block(Generic[_Value]):
    def __init__(self, generator: Any) -> None:  # noqa: ANN401 - it has ``throw`` and ``close``
        self._generator = generator

    def __enter__(self) -> _Value:
        generator = self._generator
        try:
            return cast(_Value, next(generator))
        except BaseException:
            generator.close()  # the generator may already hold its resource
            raise

    @property
    def __exit__(self) -> Callable[..., bool]:
        """The only reference to the generator that the ``with`` statement has while it runs.

        So the generator ends with the statement, even if an interrupt comes before ``_leave``
        begins, whose frame the traceback holds.
        """
        leave = partial(_leave, ref(self._generator))
        vars(leave)["generator"] = self._generator
        return leave


def _leave(
    generator: Callable[[], Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> bool:
    """Resume a generator behind its ``yield``, and return whether it has handled the error."""
    if error is None:
        next(generator(), None)
        return False
    try:
        generator().throw(error)
    except StopIteration:
        return True
    except BaseException as raised:
        if raised is not error:
            raise
        error.__traceback__ = traceback
    return False
