"""Operations that change a device's folder, with the states that a folder may have."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.external import Encoders, write_external_releases
from support.repository import can_publish, publish, served

import fala
from fala.testing import Say, labels_of, run_apart, texts, write_releases

LEARNED, FURTHER, PROBES = texts()[:60], texts()[60:66], texts()[100:140]
ADDED, FORGOTTEN = FURTHER[:3], LEARNED[:5]

#: Forward passes of a replacement and of a refinement: several batches with a commit each.
PASSES = 24

Look = Callable[[], None]
#: Yields after every acknowledged change; looks where the predictions may have changed.
Act = Callable[[fala.Device, Look], Iterator[object]]


@dataclass(frozen=True)
class Operation:
    """One change of a device.

    Attributes:
        name: Its name.
        folder: The folder of the releases.
        start: The device's folder before the operation; None if there is none.
        act: The function that performs it.
        states: Digests of the device's predictions during it, in order: the old model's first.
        acknowledged: For every acknowledgement, the position of the earliest allowed state.
        labels: The examples' labels before the operation, by text.
        encoder: The app's own encoders, by name; None if the releases have models.
    """

    name: str
    folder: Path
    start: Path | None
    act: Act
    states: list[str] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    encoder: Encoders = None

    def open(self, folder: Path) -> fala.Device:
        """Open a folder with the app's encoders."""
        return fala.Device.open(folder, encoder=self.encoder)

    def work(self, folder: Path, say: Say, look: Look = lambda: None) -> None:
        """Perform the operation; sends every acknowledgement."""
        if self.start is None:
            release = self.folder / "glove.fala"
            fala.Device.create(folder, release, encoder=self.encoder).close()
            look()
            say("created")
            return
        with self.open(folder) as device:
            for _ in self.act(device, look):
                look()
                say("done")


def state_of(device: fala.Device) -> str:
    """A digest of a device's predictions: equal if every bit is."""
    return hashlib.sha256(
        device.status().release.encode() + device.predict_proba(PROBES).tobytes()
    ).hexdigest()


def examples_of(device: fala.Device) -> dict[str, str]:
    """The labels of a device's examples, by text."""
    return {str(each.example): str(each.label) for each in device.examples()}


def _learn(device: fala.Device, _: Look) -> Iterator[object]:
    for text in ADDED:
        yield device.learn([text], labels_of([text]))


def _forget(device: fala.Device, _: Look) -> Iterator[object]:
    yield device.forget([each.id for each in device.examples() if each.example in FORGOTTEN])


def _roll_back(device: fala.Device, _: Look) -> Iterator[object]:
    device.rollback()
    yield


def _refine(device: fala.Device, look: Look) -> Iterator[object]:
    yield device.refine(fala.Budget(PASSES), progress=lambda *_: look())


def _replace(release: Path) -> Act:
    def replace(device: fala.Device, look: Look) -> Iterator[object]:
        yield device.replace(release, fala.Budget(PASSES), progress=lambda *_: look())

    return replace


def _update(address: str, root: Path) -> Act:
    def update(device: fala.Device, look: Look) -> Iterator[object]:
        yield device.update(
            address, root=root, product="model", budget=fala.Budget(PASSES),
            progress=lambda *_: look(),
        )  # fmt: skip

    return update


#: Names of the operations.
NAMES = (
    "create", "learn", "replace over a bridge", "replace without a bridge", "refine", "forget",
    "rollback", "update",
)  # fmt: skip


@contextmanager
def operations(
    folder: Path, only: Sequence[str], encoder: Encoders = None
) -> Iterator[list[Operation]]:
    """Make releases, folders, and the operations with their states; serve the update.

    This process never loads a model, so that its forks are small and clean.
    """
    only = only or [name for name in NAMES if name != "update" or can_publish()]
    prepare(folder, encoder)
    learned, replaced = folder / "learned", folder / "replaced"
    acts: dict[str, tuple[Path | None, Act]] = {
        "create": (None, _learn),
        "learn": (learned, _learn),
        "replace over a bridge": (learned, _replace(folder / "bert.fala")),
        "replace without a bridge": (learned, _replace(folder / "bert-without-a-bridge.fala")),
        "refine": (replaced, _refine),
        "forget": (learned, _forget),
        "rollback": (replaced, _roll_back),
    }
    with ExitStack() as servers:
        if "update" in only:
            root = publish(folder / "repository", folder / "bert.fala")
            address = servers.enter_context(served(folder / "repository"))
            acts["update"] = learned, _update(address, root)
        yield [_watched(Operation(name, folder, *acts[name], encoder=encoder)) for name in only]


def _watched(operation: Operation) -> Operation:
    """Fill in an operation's states by a run without interruption."""
    (record,) = run_apart(lambda say: say(_states(operation)), limit=600).said
    operation.states.extend(record["states"])
    operation.acknowledged.extend(record["acknowledged"])
    operation.labels.update(record["labels"])
    warm(record["modules"])
    return operation


def prepare(folder: Path, encoder: Encoders = None) -> None:
    """Make releases, and two folders: ``learned``, and ``replaced`` over a bridge."""
    warm(*run_apart(lambda say: say(_prepare(folder, encoder)), limit=600).said)


def warm(modules: list[str]) -> None:
    """Import a process's modules, so that the next forks have them."""
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _prepare(folder: Path, encoder: Encoders) -> list[str]:
    """Make the releases and folders; returns the imported modules."""
    if encoder is None:
        write_releases(folder)
    else:
        write_external_releases(folder, encoder)
    learned, first = folder / "learned", folder / "glove.fala"
    with fala.Device.create(learned, first, encoder=encoder) as device:
        device.learn(LEARNED, labels_of(LEARNED))
    shutil.copytree(folder / "learned", folder / "replaced")
    with fala.Device.open(folder / "replaced", encoder=encoder) as device:
        device.replace(folder / "bert.fala", fala.Budget(PASSES // 2))
        device.learn(FURTHER[:2], labels_of(FURTHER[:2]))
    return sorted(sys.modules)


def _states(operation: Operation) -> dict[str, Any]:
    """Perform an operation once, while a second device reads its states."""
    path = operation.folder / "seen"
    states: list[str] = []
    acknowledged: list[int] = []
    labels: dict[str, str] = {}

    def look() -> None:
        with operation.open(path) as device:
            if (state := state_of(device)) not in states:
                states.append(state)

    if operation.start is not None:
        shutil.copytree(operation.start, path, symlinks=True)
        with operation.open(path) as device:
            labels = examples_of(device)
        look()
    if operation.name == "rollback":  # the earlier model, before it learns the newer labels
        with operation.open(operation.folder / "learned") as device:
            states.append(state_of(device))
    operation.work(path, lambda _: acknowledged.append(len(states) - 1), look)
    shutil.rmtree(path)
    return {
        "states": states, "acknowledged": acknowledged, "labels": labels,
        "modules": sorted(sys.modules),
    }  # fmt: skip


def check(operation: Operation, folder: Path, confirmed: int, *, again: bool = True) -> str | None:
    """The failure of a folder in which an operation was interrupted; None if there is none.

    Args:
        operation: The operation.
        folder: The folder; this changes it.
        confirmed: The number of acknowledgements.
        again: Whether to repeat the operation.
    """
    try:
        state, examples = _opened(operation, folder)
    except fala.DeviceError as error:
        if operation.start is not None or confirmed:
            return f"does not open: {error}"
        operation.work(folder, lambda _: None)
        state, examples = _opened(operation, folder)
    if state not in operation.states:
        return "predicts neither as before nor as afterwards"
    position = operation.states.index(state)
    if confirmed and position < operation.acknowledged[confirmed - 1]:
        return "predicts as before an acknowledged change"
    failure = _lost(operation, examples, confirmed)
    if failure is None and again and operation.start is not None:
        operation.work(folder, lambda _: None)
        after, examples = _opened(operation, folder)
        if position == 0 and after != operation.states[-1]:
            return "a second try ends with other predictions"
        failure = _lost(operation, examples, len(operation.acknowledged))
        files = {file.name for file in (folder / "bundles").iterdir()}
        if failure is None and (len(files) > 2 or any(name.endswith(".part") for name in files)):
            return f"leaves files behind: {sorted(files)}"
    return failure


def _opened(operation: Operation, folder: Path) -> tuple[str, dict[str, str]]:
    with operation.open(folder) as device:
        return state_of(device), examples_of(device)


def _lost(operation: Operation, examples: dict[str, str], confirmed: int) -> str | None:
    """An example that a device has lost, or kept although the user deleted it."""
    expected = dict(operation.labels)
    if operation.name == "learn":
        expected.update(zip(ADDED[:confirmed], labels_of(ADDED[:confirmed]), strict=True))
    if operation.name == "forget":
        remaining = [text for text in FORGOTTEN if text in examples]
        if remaining and (confirmed or len(remaining) < len(FORGOTTEN)):
            return f"keeps a forgotten example: {remaining[0]!r}"
        for text in FORGOTTEN:
            expected.pop(text)
    lost = [text for text, label in expected.items() if examples.get(text) != label]
    return f"lost an example: {lost[0]!r}" if lost else None
