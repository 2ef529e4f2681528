"""Check before any work a command's outputs, names, sizes, and the disk space."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fala.bundle.manifest import LONGEST_LABEL, LONGEST_NAME, printable_name
from fala_export.base.errors import ExportError

# The extension of a bundle; a model's files have others.
_BUNDLE = ".fala"
_OUTPUT, _WORK = "out", "work"
_NAMES = ("name", "task")
_SOURCES = ("source", "model")  # Fields that are a path or a name on the hub.


def check_settings(
    settings: object, files: Sequence[Path] = (), folders: Sequence[Path] = ()
) -> None:
    """Check a command's outputs, and the names that it sets.

    Args:
        settings: The command's dataclass; its fields ``out`` and ``work`` are outputs, and its
            other paths are inputs.
        files: Further files to write.
        folders: Further work folders.

    Raises:
        ExportError: An output or a name is invalid; see ``check_outputs`` and
            ``check_release_name``.
    """
    fields = list(_fields(settings))
    for field, value in fields:
        if field in _NAMES and isinstance(value, str) and value:
            check_release_name(value)
    paths = [
        (field, Path(value))
        for field, value in fields
        if isinstance(value, Path) or (isinstance(value, str) and field in _SOURCES)
    ]
    check_outputs(
        [*files, *(path for field, path in paths if field == _OUTPUT)],
        [*folders, *(path for field, path in paths if field == _WORK)],
        [path for field, path in paths if field not in (_OUTPUT, _WORK)],
    )


def _fields(settings: object) -> Iterator[tuple[str, object]]:
    """Yield the fields of a dataclass and of its inner dataclasses, and each item of a tuple."""
    if not dataclasses.is_dataclass(settings):
        return
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            yield field.name, item
            yield from _fields(item)


def check_outputs(files: Iterable[Path], folders: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Check that outputs can be written, and overwrite no input.

    Args:
        files: Files to write.
        folders: Work folders, whose files are replaced.
        inputs: Files and folders that are read; they need not exist.

    Raises:
        ExportError: An output cannot be written, or is an input, under any name or in an input's
            folder.
    """
    present = [path for path in inputs if path.exists()]
    for file in files:
        if not file.parent.is_dir():
            raise ExportError(f"{file}: its folder does not exist; create it first")
        if file.exists() and not file.is_file():
            raise ExportError(f"{file}: is not a regular file, so a bundle cannot replace it")
        if not os.access(file.parent, os.W_OK):
            raise ExportError(f"{file}: its folder cannot be written")
        for path in present:
            inside = _real(path) in _real(file).parents and file.suffix != _BUNDLE
            if _same(file, path) or (file.exists() and inside):
                raise _overwrites(file, path)
    for folder in folders:
        for path in present:
            if _same(folder, path) or _real(folder) in _real(path).parents:
                raise _overwrites(folder, path)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _same(output: Path, path: Path) -> bool:
    return _real(output) == _real(path) or (output.exists() and output.samefile(path))


def _overwrites(output: Path, path: Path) -> ExportError:
    return ExportError(f"{output}: would overwrite {path}, which is read; choose another output")


def check_release_name(name: str, kind: str = "name") -> None:
    """Check that a name is valid for a release or a label.

    Args:
        name: The name.
        kind: The kind of name, for the error message.

    Raises:
        ExportError: The name is blank or too long, or has hidden characters.
    """
    longest = LONGEST_LABEL if kind == "label" else LONGEST_NAME
    if not name.strip() or not printable_name(name, longest):
        raise ExportError(
            f"the {kind} must not be empty, contain control characters, or be longer than "
            f"{longest} characters: {name!r:.80}"
        )


def check_room(needed: float, *folders: Path) -> None:
    """Check that the disk of each folder has enough room.

    Args:
        needed: Bytes needed in each folder.
        folders: Folders to write to; they, or folders above them, exist.

    Raises:
        ExportError: A disk does not have enough room.
    """
    for folder in folders:
        existing = next(path for path in (_real(folder), *_real(folder).parents) if path.is_dir())
        free = shutil.disk_usage(existing).free
        if free < needed:
            raise ExportError(
                f"{folder}: needs {needed / 1e6:.0f} MB, but only {free / 1e6:.0f} MB are free"
            )
