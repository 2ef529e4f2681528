"""A method in a file outside the package, as ``fala-sim --method FILE.py`` takes it."""

from __future__ import annotations

import re
import sys
import traceback
from dataclasses import dataclass
from hashlib import sha256
from inspect import isabstract
from pathlib import Path
from types import ModuleType

from fala import DataError
from fala_sim.methods.method import Method

#: The form of a method's name, which stands between commas on the command line.
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class MethodFile:
    """A file's name and content, which a job's process reads on any machine.

    Attributes:
        name: Name of the file, without its folder.
        content: Bytes of the file.
    """

    name: str
    content: bytes

    @classmethod
    def read(cls, path: Path) -> MethodFile:
        """Read a file.

        Raises:
            DataError: The file is not a Python file, or cannot be read.
        """
        if path.suffix != ".py":
            raise DataError(f"{path}: a method must be a Python file, whose name ends in .py")
        try:
            return cls(path.name, path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from error

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal digits."""
        return sha256(self.content).hexdigest()

    @property
    def origin(self) -> dict[str, str]:
        """The file's entry in a record's provenance."""
        return {"file": self.name, "sha256": self.digest}

    def method(self) -> type[Method]:
        """Run the file, and return the method that it defines.

        Raises:
            DataError: The file cannot be run, or does not define exactly one complete method.
        """
        module = ModuleType(f"fala_sim_method_{self.digest[:16]}")
        module.__file__ = self.name
        sys.modules[module.__name__] = module  # dataclasses need the module to be registered
        try:
            exec(compile(self.content, self.name, "exec"), vars(module))
        except (Exception, SystemExit) as error:
            raise DataError(f"{self.name}{_line(error, self.name)}: cannot be imported: "
                            f"{type(error).__name__}: {error}") from error  # fmt: skip
        classes = [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Method)
            and value.__module__ == module.__name__
            and "name" in vars(value)
        ]
        methods = list(dict.fromkeys(classes))
        if len(methods) != 1:
            names = ", ".join(method.__name__ for method in methods)
            raise DataError(
                f"{self.name}: defines {f'{len(methods)} methods ({names})' if names else 'none'}; "
                "it must define exactly one class with a `name` that inherits from "
                "fala_sim.methods.method.Method or from a method"
            )
        self._check(methods[0])
        return methods[0]

    def _check(self, method: type[Method]) -> None:
        """Check that a method can be named, shown and run."""
        name, title = method.name, getattr(method, "title", None)
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise DataError(
                f"{self.name}: {method.__name__}.name is {name!r:.60}; use small letters, "
                "digits, and hyphens between them"
            )
        if not (isinstance(title, str) and title):
            raise DataError(f"{self.name}: {method.__name__} needs a `title`, its name in tables")
        if isabstract(method):
            missing = ", ".join(sorted(method.__abstractmethods__))
            raise DataError(f"{self.name}: {method.__name__} has no {missing}")


def _line(error: BaseException, name: str) -> str:
    """Return the line of the file at which an error arose."""
    if isinstance(error, SyntaxError) and error.filename == name:
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == name]  # fmt: skip
    return f", line {lines[-1]}" if lines else ""
