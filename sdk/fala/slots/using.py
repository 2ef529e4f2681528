"""Use a task's active release; one on trial that fails gives way to the previous one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from fala.errors import BundleError, DeviceChangedError, DeviceError
from fala.examples import Example
from fala.slots.folder import Folder
from fala.slots.snapshot import Snapshot
from fala.slots.switching import fall_back
from fala.slots.trial import TRIES, blames_release
from fala.slots.validation import FEW_EDGE_CASES, check_trial
from fala.store.records import Trial

Result = TypeVar("Result")


def use(
    folder: Folder,
    adapter: str,
    call: Callable[[Snapshot], Result],
    examples: Sequence[Example] = (),
    snapshot: Snapshot | None = None,
) -> Result:
    """Call a function that runs a task's active release, which is probed first if it is on trial.

    It is called again, with another snapshot, where another process has changed the task meanwhile
    and deleted a file of it; and where the release is on trial and fails.

    Args:
        folder: The device's folder.
        adapter: The task's.
        call: The function.
        examples: The app's: the first few are among the probes.
        snapshot: The task, where the caller has just read it.

    Raises:
        BundleError: The release fails, and there is nothing to fall back to.
        DeviceChangedError: Something other than the task changed meanwhile.
    """
    while True:
        snapshot = snapshot or opened(folder, adapter)
        own = opened(folder) if adapter else snapshot
        if own.trial is not None and not folder.trials.has_passed(own.trial.began):
            _probe(folder, own, own.trial, () if adapter else examples)
            snapshot = None
            continue
        try:
            return call(snapshot)
        except (BundleError, DeviceChangedError) as error:
            changed = folder.snapshot(adapter).generation != snapshot.generation
            if not changed and not give_up(folder, error):
                raise
        snapshot = None


def opened(folder: Folder, adapter: str = "") -> Snapshot:
    """A task's snapshot, after a fall back where the release on trial cannot be opened.

    Raises:
        BundleError: It cannot be opened, and there is nothing to fall back to.
        DeviceError: See ``Folder.snapshot``.
    """
    try:
        return folder.snapshot(adapter)
    except BundleError as error:
        if not give_up(folder, error):
            raise
    return folder.snapshot(adapter)


def give_up(folder: Folder, error: BundleError | DeviceChangedError) -> bool:
    """Fall back from the release on trial after an error.

    Returns:
        Whether another slot is active now; False where none is on trial, the error is no fault of
        the release, or the previous slot fails, too.
    """
    trial = folder.trials.running()
    faulty = isinstance(error, BundleError) and blames_release(error)
    return trial is not None and faulty and fall_back(folder, trial, str(error))


def check_tries(folder: Folder) -> None:
    """Fall back from a release on trial with which too many processes ended, before it is loaded.

    Raises:
        DeviceError: The store is damaged.
    """
    trials = folder.trials
    trial = trials.running()
    if trial is None or trial.tries < TRIES:
        return
    with trials.exclusive() as exclusive:  # else the last try is still running
        trial = trials.running()
        if exclusive and trial is not None and trial.tries >= TRIES:
            reason = f"{trial.tries} processes in a row ended while it was loaded or probed"
            fall_back(folder, trial, reason)


def _probe(folder: Folder, own: Snapshot, trial: Trial, examples: Sequence[Example]) -> None:
    """Run a release on trial on a few texts, before its first use in this process; or fall back.

    Raises:
        BundleError: It fails, and there is nothing to fall back to.
    """
    trials = folder.trials
    with folder.probing:
        check_tries(folder)
        with trials.exclusive() as exclusive:
            running = trials.running()
            if running is None or running.began != trial.began or trials.has_passed(trial.began):
                return  # its trial has ended meanwhile, or another thread has probed it
            try:
                with trials.counted(running) if exclusive else contextlib.nullcontext():
                    _run_probes(folder, own, examples)
                    trials.passed(trial.began, running.predictions)
            except BundleError as error:
                if not give_up(folder, error):
                    raise


def _run_probes(folder: Folder, own: Snapshot, examples: Sequence[Example]) -> None:
    """Run the active models of all tasks on a few texts; see ``check_trial``."""
    # The app's own encoder may be for items without a text.
    edge_cases = () if own.release.bundle.external else FEW_EDGE_CASES
    newest = folder.store.texts.newest(len(edge_cases)) if edge_cases else []
    texts = [*edge_cases, *newest]
    check_trial(own.active.active_model, examples, texts)
    for adapter in folder.store.slots.adapters():
        with contextlib.suppress(DeviceError):  # its row is damaged or deleted
            check_trial(folder.snapshot(adapter).active.active_model, (), texts)
