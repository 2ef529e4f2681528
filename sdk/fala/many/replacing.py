"""Replace for all: carry the personal model of every device of a machine over to a new release.

Each process carries one device over at a time. The next call finishes whatever is interrupted: a
device that has the release is not replaced again, and a device whose budget is not spent goes on.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fala.arguments import (
    check_adapter_name,
    check_budget,
    check_folder,
    check_progress,
    check_source,
    check_terms,
)
from fala.backbones.external import Encoders, Functions
from fala.backbones.onnx_encoder import cores
from fala.base.errors import DataError, DeviceError, shown, type_of
from fala.base.examples import listed
from fala.base.files import FULL_DISK, check_path
from fala.bundle.signature import Trust, key_bytes
from fala.many.carrying import Carrying, KeyedFolder, Outcome
from fala.many.releases import Releases
from fala.many.replaced import ReplacedAll
from fala.many.workers import in_processes
from fala.personal.compare import Accept
from fala.personal.run import Budget, Progress, Run
from fala.slots.child import forbidden
from fala.slots.installing import release_files

#: A function that is called as the built-in ``map`` is, with a function and items that can be
#: pickled, and that yields the results in any order.
Map: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]

#: Consecutive devices without room on the disk after which no further one is tried.
_MOST_FULL = 3


def replace_all(
    devices: Iterable[str | os.PathLike[str]],
    release: str | os.PathLike[str] | None = None,
    *,
    releases: Releases | None = None,
    budget: Budget | None = None,
    accept: Accept = "always",
    allow_older: bool = False,
    trust: Trust | None = None,
    key: Callable[[Path], bytes] | None = None,
    encoder: Functions | None = None,
    dimension: int | None = None,
    workers: int | Map | None = None,
    progress: Progress | None = None,
    adapters: Mapping[str, str | os.PathLike[str]] | None = None,
) -> ReplacedAll:
    """Replace the backbone of many devices, and carry every personal model over.

    Each device is replaced as by ``Device.replace``, and gets the same model. It may be open in
    other processes: it predicts throughout, and labels that it learns meanwhile are kept. The
    release is audited and validated once. A text that several users have is encoded once per
    process. Its embedding is kept in memory, under a digest, and never written anywhere but to the
    devices that have the text.

    The next call finishes one that was interrupted or killed. A device that already has the release
    is not replaced again; if the budget allows more texts than the release has encoded there, it is
    refined. A device that went back from the release keeps its previous one.

    Args:
        devices: The devices' folders.
        release: The new release's file; see ``Device.replace``. None uses the app's own
            ``encoder``, with each device's own labels.
        releases: The folder where the release is kept once for all of them; see ``Device.open``.
            None gives each device a copy.
        budget: The limits of the cost per device; None is ``Budget()``. A text counts for the
            device that has it, even if it was encoded for another one.
        accept: Which models may be installed. This, ``allow_older`` and ``trust`` are the arguments
            of ``Device.replace``.
        allow_older: Whether an older release may be installed.
        trust: The key that must have signed the release.
        key: A function that returns the key of a device, given its folder; see ``Device.create``.
        encoder: With a release, the app's own encoders; see ``Device.open``. Without a release, the
            app's next encoder; see ``Device.replace``. Other processes import the function by its
            name; a function that they cannot import is called in this process.
        dimension: The length of the encoder's embeddings; see ``Device.replace``.
        workers: The number of processes, each with one device at a time. None takes one per core,
            and 1 uses only this process, as if no other can be started. A function that is called
            as the built-in ``map`` is may instead use other machines, for example by Ray.
        progress: A function that is called with ``"devices"``, the number of devices that are done,
            and the number of all. If it returns False, no further device is begun.
        adapters: The files of the vendor's adapters for the new backbone, by the names of their
            tasks; each device takes those of its tasks.

    Returns:
        What was done. A device that fails does not stop the others, and is listed in ``failures``.

    Raises:
        BundleError: If the release cannot be trusted.
        DataError: If an argument cannot be used.
        DeviceError: If the disk is full, or the processes end one after another. Run the call again
            after removing the cause.

    Examples:
        >>> glove, bert = fala_sim.sample_release("glove"), fala_sim.sample_release("bert")
        >>> shared = fala.Releases("releases")
        >>> for user in ("ann", "bob"):
        ...     with fala.Device.create(f"users/{user}", glove, releases=shared) as device:
        ...         _ = device.learn(["you absolute clown", "a lovely match"], [1, 0])
        >>> result = fala.replace_all(["users/ann", "users/bob"], bert, releases=shared, workers=1)
        >>> result.replaced, result.failed
        (2, 0)
    """
    folders = list(dict.fromkeys(map(check_folder, listed(devices, "devices", ordered=False))))
    own = check_source(release, None if release else encoder, dimension, trust)
    functions: Functions | None = {own.name: own.function} if own else encoder
    Encoders(functions)  # raises an error if they cannot be used
    if not isinstance(adapters := adapters or {}, Mapping):
        raise DataError(
            f"adapters must be files by the names of their tasks, not {shown(adapters)}"
        )
    files = {
        check_adapter_name(name): check_path(file, "adapters").absolute()
        for name, file in adapters.items()
    }
    key_of_vendor = None if trust is None else key_bytes(trust)
    carrying = Carrying(
        release=None if release is None else check_path(release, "release").absolute(),
        releases=release_files(releases),
        budget=check_budget(budget),
        terms=check_terms(accept, key_of_vendor, (), allow_older=allow_older),
        functions=functions,
        own=own.name if own else "",
        dimension=dimension,
        adapters=files,
    )
    run = Run(progress=check_progress(progress))
    call = _map_of(workers, functions, len(folders))
    items, done = _with_keys(folders, key)
    try:
        done = ReplacedAll(carrying.admit(), len(folders)) + done
        with run:
            done = _carried(call(carrying, items), done, folders, run)
    finally:
        carrying.close()
    return replace(done, seconds=run.total()["total"])


def _carried(
    results: Iterable[Outcome], done: ReplacedAll, folders: Sequence[Path], run: Run
) -> ReplacedAll:
    """Add up the outcomes of devices, until the app cancels.

    Raises:
        FalaError: If no further device can be replaced.
    """
    left, full = set(folders) - {Path(each.path) for each in done.failures}, 0
    outcomes = iter(results)
    try:
        run.report("devices", done.reached, done.devices)
        while not run.cancelled and (outcome := next(outcomes, None)) is not None:
            path, result = outcome
            if isinstance(result, Exception):
                raise result
            done += result
            left.discard(path)
            is_full = any(FULL_DISK in failure.message for failure in result.failures)
            full = full + 1 if is_full else 0
            if full == _MOST_FULL:
                raise DeviceError(
                    f"{done.failures[-1].message}; {done.reached} of {done.devices} devices are "
                    "done; run this again when there is room"
                )
            run.report("devices", done.reached, done.devices)
    finally:
        if close := getattr(outcomes, "close", None):  # other processes end then
            close()
    lost = DeviceError(
        "its process ended (often for lack of memory); run this again with fewer processes"
    )
    for path in folders if left and not run.cancelled else ():
        if path in left:
            done += ReplacedAll.failing(path, lost)
    return done


def _with_keys(
    folders: Sequence[Path], key: Callable[[Path], bytes] | None
) -> tuple[list[KeyedFolder], ReplacedAll]:
    """Return the devices with their keys, and those for which the app's function fails.

    Raises:
        DataError: If ``key`` is not a function.
    """
    if key is None:
        return [(folder, None) for folder in folders], ReplacedAll()
    if not callable(key):
        raise DataError(f"key must be a function of a device's folder, not {shown(key)}")
    items, failed = list[KeyedFolder](), ReplacedAll()
    for folder in folders:
        try:
            value = key(folder)
            if not isinstance(value, bytes | bytearray):
                raise DataError(f"{folder}: key must return bytes, not {type_of(value)}")
            items.append((folder, bytes(value)))
        except Exception as error:  # noqa: PERF203 - the error of one device
            failed += ReplacedAll.failing(folder, error)
    return items, failed


def _map_of(workers: int | Map | None, functions: object, devices: int) -> Map:
    """Return the function that calls another one for every device, here or elsewhere.

    Raises:
        DataError: If ``workers`` is neither a number of processes nor such a function.
    """
    if callable(workers):
        return workers
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int)):
        raise DataError(f"workers must be a number of processes, or a map, not {shown(workers)}")
    if workers is not None and workers < 1:
        raise DataError(f"workers must be 1 or more, not {shown(workers)}")
    count = min(workers or cores(), devices)
    if count < 2 or forbidden() or not _importable(functions):
        return map
    return partial(in_processes, count=count)


def _importable(functions: object) -> bool:
    """Return whether another process can import the app's encoders."""
    try:
        return b"__main__" not in pickle.dumps(functions)
    except Exception:  # a lambda or an open session; pickle raises many kinds of errors
        return False
