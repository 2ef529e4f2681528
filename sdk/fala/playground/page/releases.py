"""The two releases of the walk: what the vendor makes on the sample's public rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fala.bundle.reading import Bundle
from fala.playground import walk as trial
from fala.playground.built_in import built_in
from fala.release.user_rows import Rows

OLD, NEW = "glove", "bert"

RELEASES = "releases"  # their folder in the walk's

#: Told of what the vendor does: a step's name, what is done and what there is to do.
Told = Callable[[str, int, int], object]


def release_files(folder: Path) -> tuple[Path, Path]:
    """The old release and the new one."""
    return folder / "old.fala", folder / "new.fala"


def sample_releases(folder: Path, rows: Rows, tell: Told) -> None:
    """Make the old and the new release, with a bridge, unless they lie there.

    Args:
        folder: Where they come to lie; whole or not at all.
        rows: The sample, whose public rows the vendor fits to.
        tell: Called as the work goes on.
    """
    if folder.is_dir():
        return
    making = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)

    def progress(chunks: Iterable[list[str]], label: str, total: int) -> Iterator[list[str]]:
        done = 0
        tell(label, done, total)
        for chunk in chunks:
            yield chunk
            done += len(chunk)
            tell(label, done, total)

    models = built_in()
    old, new = (Bundle.open(models[name]) for name in (OLD, NEW))
    trial.prepare(old, new, rows, [], making, progress)
    making.rename(folder)
