"""Operations that change a device's folder, with the states that a folder may have."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

import fala
from fala.testing import PowerCuts, Say, labels_of, run_apart, texts, write_releases
from file_server import FileServer
from vendors import Vendor

LEARNED, FURTHER, PROBES = texts()[:60], texts()[60:66], texts()[100:140]
ADDED, FORGOTTEN = FURTHER[:3], LEARNED[:5]

#: Forward passes of a replacement and of a refinement: several batches with a commit each.
PASSES = 24

#: Performs an operation; yields after every acknowledged change. The second argument is called
#: where the predictions may have changed.
Act = Callable[[fala.Device, Callable[..., object]], Iterable[object]]


@dataclass
class Operation:
    """One change of a device.

    Attributes:
        name: Its name.
        folder: The folder of the releases and of the copies.
        start: The device's folder before the operation; None if there is none.
        act: The function that performs it.
        states: Digests of the device's predictions during it, in order: the old model's first.
        acknowledged: For every acknowledgement, the position of the earliest allowed state.
        labels: The examples' labels before the operation, by text.
        cuts: Runs of the operation on copies of its start.
    """

    name: str
    folder: Path
    start: Path | None
    act: Act
    states: list[str] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cuts = PowerCuts(self.work, self.start, scratch=self.folder)

    def work(self, folder: Path, say: Say, look: Callable[..., object] = lambda *_: None) -> None:
        """Perform the operation; sends every acknowledgement."""
        if self.start is None:
            fala.Device.create(folder, self.folder / "glove.fala").close()
            look()
            say("created")
            return
        with fala.Device.open(folder) as device:
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


#: Names of the operations.
NAMES = (
    "create", "learn", "replace over a bridge", "replace without a bridge", "refine", "forget",
    "rollback", "update",
)  # fmt: skip
#: The option of benchmarks that interrupt operations.
ONLY = click.option("--only", type=click.Choice(NAMES), multiple=True, help="Default: all of them.")


def _acts(folder: Path, update: dict[str, Any]) -> dict[str, tuple[Path | None, Act]]:
    """Where each operation starts, and what it does."""
    learned, replaced, budget = folder / "learned", folder / "replaced", fala.Budget(PASSES)
    bridged, plain = folder / "bert.fala", folder / "bert-without-a-bridge.fala"
    return {
        "create": (None, lambda device, look: []),
        "learn": (
            learned,
            lambda device, look: (device.learn([text], labels_of([text])) for text in ADDED),
        ),
        "replace over a bridge": (
            learned, lambda device, look: [device.replace(bridged, budget, progress=look)],
        ),
        "replace without a bridge": (
            learned, lambda device, look: [device.replace(plain, budget, progress=look)],
        ),
        "refine": (replaced, lambda device, look: [device.refine(budget, progress=look)]),
        "forget": (learned, lambda device, look: [device.forget(FORGOTTEN)]),
        "rollback": (replaced, lambda device, look: [device.rollback()]),
        "update": (
            learned,
            lambda device, look: [device.update(**update, budget=budget, progress=look)],
        ),
    }  # fmt: skip


@contextmanager
def operations(only: Sequence[str]) -> Iterator[list[Operation]]:
    """Make releases, folders, and the operations with their states; serve the update.

    This process never loads a model, so that its forks are small and clean.
    """
    with prepared() as folder:
        vendor = Vendor(folder / "vendor")
        vendor.publish(folder / "bert.fala")
        with FileServer(vendor.files()) as server:
            update = {"url": server.address, "root": vendor.root, "product": "model"}
            acts = _acts(folder, update)
            yield [_watched(Operation(name, folder, *acts[name])) for name in only or NAMES]


def _watched(operation: Operation) -> Operation:
    """Fill in an operation's states by a run without interruption."""
    (found,) = run_apart(lambda say: say(_states(operation)), limit=600).said
    operation.states, operation.acknowledged, operation.labels = found
    return operation


@contextmanager
def prepared() -> Iterator[Path]:
    """Make releases in a temporary folder, and two devices: learned, and replaced on a bridge."""
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        (modules,) = run_apart(lambda say: say(_prepare(folder)), limit=600).said
        for name in modules:  # imported here, so that the next forks have them
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        yield folder


def _prepare(folder: Path) -> list[str]:
    """Make the releases and folders; returns the imported modules."""
    write_releases(folder)
    with fala.Device.create(folder / "learned", folder / "glove.fala") as device:
        device.learn(LEARNED, labels_of(LEARNED))
    with fala.Device.open(shutil.copytree(folder / "learned", folder / "replaced")) as device:
        device.replace(folder / "bert.fala", fala.Budget(PASSES // 2))
        device.learn(FURTHER[:2], labels_of(FURTHER[:2]))
    return sorted(sys.modules)


def _states(operation: Operation) -> tuple[list[str], list[int], dict[str, str]]:
    """Perform an operation once, while a second device reads its states.

    Returns:
        The operation's ``states``, ``acknowledged`` and ``labels``.
    """
    states: list[str] = []
    acknowledged: list[int] = []
    labels: dict[str, str] = {}
    with operation.cuts.copy() as path:

        def look(*_: object) -> None:
            state, _ = _opened(path)
            if state not in states:
                states.append(state)

        if operation.start is not None:
            _, labels = _opened(path)
            look()
        if operation.name == "rollback":  # the earlier model, before it learns the newer labels
            states.append(_opened(operation.folder / "learned")[0])
        operation.work(path, lambda _: acknowledged.append(len(states) - 1), look)
    return states, acknowledged, labels


def check(operation: Operation, folder: Path, confirmed: int, *, again: bool = True) -> str | None:
    """The failure of a folder in which an operation was interrupted; None if there is none.

    Args:
        operation: The operation.
        folder: The folder; this changes it.
        confirmed: The number of acknowledgements.
        again: Whether to repeat the operation.
    """
    try:
        state, examples = _opened(folder)
    except fala.DeviceError as error:
        if operation.start is not None or confirmed:
            return f"does not open: {error}"
        operation.work(folder, lambda _: None)
        state, examples = _opened(folder)
    if state not in operation.states:
        return "predicts neither as before nor as afterwards"
    position = operation.states.index(state)
    if confirmed and position < operation.acknowledged[confirmed - 1]:
        return "predicts as before an acknowledged change"
    failure = _lost(operation, examples, confirmed)
    if failure is None and again and operation.start is not None:
        operation.work(folder, lambda _: None)
        after, examples = _opened(folder)
        if position == 0 and after != operation.states[-1]:
            return "a second try ends with other predictions"
        failure = _lost(operation, examples, len(operation.acknowledged))
        files = {file.name for file in (folder / "bundles").iterdir()}
        if failure is None and (len(files) > 2 or any(name.endswith(".part") for name in files)):
            return f"leaves files behind: {sorted(files)}"
    return failure


def _opened(folder: Path) -> tuple[str, dict[str, str]]:
    """The state and the examples of a folder."""
    with fala.Device.open(folder) as device:
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
