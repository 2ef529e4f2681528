"""A training's work folder: what it was started with, and checkpoints that are whole or nothing.

A process can be killed in the middle of writing a checkpoint. One counts only if it is sealed:
its last file lists the digests of all others.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fala import ExportError
from fala.release import write_atomically

_PREFIX = "checkpoint-"
_SEAL = "sealed.json"
_RECIPE = "recipe.json"
_LOCK = ".lock"


def seal(checkpoint: Path) -> None:
    """Mark a checkpoint as whole, once all of its files are written."""
    content = json.dumps(_digests(checkpoint), indent=2)
    write_atomically(checkpoint / _SEAL, lambda part: _write(part, content))


def is_whole(checkpoint: Path) -> bool:
    """Tell whether a checkpoint has every byte that was sealed."""
    try:
        sealed = json.loads((checkpoint / _SEAL).read_text())
    except (OSError, ValueError):
        return False
    return bool(sealed == _digests(checkpoint))


def at_step(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is, by the Trainer's own rule."""
    return folder / f"{_PREFIX}{step}"


def newest(folder: Path) -> Path | None:
    """Find the latest whole checkpoint, and remove those that are not."""
    latest: Path | None = None
    for checkpoint in sorted(_all(folder), key=_step):
        if is_whole(checkpoint):
            latest = checkpoint
        else:
            shutil.rmtree(checkpoint)
    return latest


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let no other training into a work folder meanwhile; a kill frees it.

    Another one would take a checkpoint that is being written for one of a killed training, and
    remove it.

    Args:
        folder: Made if missing.

    Raises:
        ExportError: Another one is there, or the folder cannot be written.
    """
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ExportError(
            f"{folder}: another process is training in it; wait until it has ended, or give "
            "another folder"
        ) from error
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def open_work(folder: Path, recipe: Mapping[str, Any], resume: bool) -> Path | None:
    """Open a work folder.

    Args:
        folder: Made if missing.
        recipe: All that a training depends on, by a name for people, as JSON can hold it.
        resume: Whether to continue what is there.

    Returns:
        The checkpoint to continue from; None starts anew.

    Raises:
        ExportError: There are checkpoints and ``resume`` is false, or they were made by another
            recipe, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = newest(folder)
        if checkpoint is not None and not resume:
            raise ExportError(
                f"{folder}: has the checkpoints of a training; continue it with --resume, "
                "or give another folder, or remove this one"
            )
        if checkpoint is not None:
            _compare(folder, recipe)
        else:
            content = json.dumps(recipe, indent=2, sort_keys=True)
            write_atomically(folder / _RECIPE, lambda part: _write(part, content))
    except OSError as error:
        raise _unusable(folder, error) from error
    return checkpoint


def _unusable(folder: Path, error: OSError) -> ExportError:
    return ExportError(f"{folder}: cannot be used: {error.strerror or error}")


def _compare(folder: Path, recipe: Mapping[str, Any]) -> None:
    try:
        known = json.loads((folder / _RECIPE).read_text())
    except (OSError, ValueError) as error:
        raise ExportError(
            f"{folder}: nothing tells what its checkpoints are of; remove it, and start anew"
        ) from error
    now = json.loads(json.dumps(recipe))
    changed = [
        f"{name} was {known.get(name)!r}, and is {now.get(name)!r}"
        for name in sorted(known.keys() | now.keys())
        if known.get(name) != now.get(name)
    ]
    if changed:
        raise ExportError(
            f"{folder}: cannot be continued, because its checkpoints are of another training: "
            f"{'; '.join(changed)}"
        )


def _all(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.glob(f"{_PREFIX}*")
        if path.is_dir() and path.name.removeprefix(_PREFIX).isdigit()
    ]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_PREFIX))


def _digests(checkpoint: Path) -> dict[str, str]:
    files = sorted(path for path in checkpoint.iterdir() if path.is_file() and path.name != _SEAL)
    digests = {}
    for path in files:
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        digests[path.name] = digest.hexdigest()
    return digests


def _write(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
