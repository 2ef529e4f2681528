"""What a device does that changes its folder, with all the states that it may be found in."""

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

from support.repository import can_publish, publish, served

import fala
from fala.testing import Say, labels_of, run_apart, texts, write_releases

KNOWN, FURTHER, PROBES = texts()[:60], texts()[60:66], texts()[100:140]

#: Forward passes of a replacement and of a refinement: several batches with a commit each.
PASSES = 24

Act = Callable[[Path, Say, Callable[[], None]], None]


@dataclass(frozen=True)
class Operation:
    """One change of a device.

    Attributes:
        name: Its name.
        start: The folder before it; None where there is none.
        act: Does it; says when something is acknowledged, and where what answers may have changed.
        states: Digests of the answers on the way, in order: the old model's first.
        told: For every acknowledgement, the place of what must answer at least.
        kept: The examples' labels before, by text.
        added: The examples that each acknowledgement adds.
        forgotten: The examples that it takes away.
    """

    name: str
    start: Path | None
    act: Act
    states: list[str] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()

    def work(self, folder: Path, say: Say) -> None:
        """Do it, for ``PowerCuts``."""
        self.act(folder, say, lambda: None)


def answers_of(device: fala.Device) -> str:
    """A digest of what a device answers: equal if every bit is."""
    return hashlib.sha256(device.name.encode() + device.predict(PROBES).tobytes()).hexdigest()


def examples_of(device: fala.Device) -> dict[str, str]:
    """The labels that a device keeps, by text."""
    return {str(each.example): str(each.label) for each in device.examples()}


#: What a device does.
NAMES = (
    "create", "learn", "replace over a bridge", "replace without a bridge", "refine", "forget",
    "rollback", "update",
)  # fmt: skip


@contextmanager
def operations(folder: Path, only: Sequence[str]) -> Iterator[list[Operation]]:
    """Make releases and folders, and every operation with its states; an update has its server.

    All is done in processes of their own: this one never loads a model, so that its forks are
    small and clean.
    """
    only = only or [name for name in NAMES if name != "update" or can_publish()]
    prepared(folder)
    with ExitStack() as ended:
        acts = _acts(folder)
        if "update" in only:
            root = publish(folder / "repository", folder / "bert.fala")
            address = ended.enter_context(served(folder / "repository"))
            acts["update"] = folder / "learned", _update(address, root), (), ()
        yield [_operation(name, folder, *acts[name]) for name in only]


def _operation(
    name: str,
    folder: Path,
    start: Path | None,
    act: Act,
    added: tuple[str, ...],
    forgotten: tuple[str, ...],
) -> Operation:
    """One operation, with what a run that nothing interrupts finds."""
    operation = Operation(name, start, act, added=added, forgotten=forgotten)
    (seen,) = run_apart(lambda say: say(_seen(folder, operation)), limit=600).said
    operation.states.extend(seen["states"])
    operation.told.extend(seen["told"])
    operation.kept.update(seen["kept"])
    warm(seen["modules"])
    return operation


def _update(address: str, root: Path) -> Act:
    def update(path: Path, say: Say, look: Callable[[], None]) -> None:
        with fala.Device.open(path) as device:
            device.update(
                address, root=root, product="model", budget=fala.Budget(PASSES),
                progress=lambda *_: look(),
            )  # fmt: skip
            look()
            say("updated")

    return update


def prepared(folder: Path) -> None:
    """Make releases, and two folders: ``learned``, and ``replaced`` over a bridge."""
    warm(*run_apart(lambda say: say(_prepare(folder)), limit=600).said)


def warm(modules: list[str]) -> None:
    """Import what a process needed: the next ones are forked with it."""
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _prepare(folder: Path) -> list[str]:
    """Make the releases and folders; gives the modules that were needed."""
    write_releases(folder)
    with fala.Device.create(folder / "learned", folder / "glove.fala") as device:
        device.learn(KNOWN, labels_of(KNOWN))
    shutil.copytree(folder / "learned", folder / "replaced")
    with fala.Device.open(folder / "replaced") as device:
        device.replace(folder / "bert.fala", fala.Budget(PASSES // 2))
        device.learn(FURTHER[:2], labels_of(FURTHER[:2]))
    return sorted(sys.modules)


def _acts(folder: Path) -> dict[str, tuple[Path | None, Act, tuple[str, ...], tuple[str, ...]]]:
    learned, replaced = folder / "learned", folder / "replaced"

    def create(path: Path, say: Say, look: Callable[[], None]) -> None:
        with fala.Device.create(path, folder / "glove.fala"):
            look()
            say("created")

    def learn(path: Path, say: Say, look: Callable[[], None]) -> None:
        with fala.Device.open(path) as device:
            for text in FURTHER[:3]:
                device.learn([text], labels_of([text]))
                look()
                say(text)

    def replace(release: str) -> Act:
        def act(path: Path, say: Say, look: Callable[[], None]) -> None:
            with fala.Device.open(path) as device:
                device.replace(folder / release, fala.Budget(PASSES), progress=lambda *_: look())
                look()
                say("replaced")

        return act

    def refine(path: Path, say: Say, look: Callable[[], None]) -> None:
        with fala.Device.open(path) as device:
            device.refine(fala.Budget(PASSES), progress=lambda *_: look())
            look()
            say("refined")

    def forget(path: Path, say: Say, look: Callable[[], None]) -> None:
        with fala.Device.open(path) as device:
            ids = [each.id for each in device.examples() if each.example in KNOWN[:5]]
            device.forget(ids)
            look()
            say("forgotten")

    def roll_back(path: Path, say: Say, look: Callable[[], None]) -> None:
        with fala.Device.open(path) as device:
            device.rollback()
            look()
            say("rolled back")

    return {
        "create": (None, create, (), ()),
        "learn": (learned, learn, tuple(FURTHER[:3]), ()),
        "replace over a bridge": (learned, replace("bert.fala"), (), ()),
        "replace without a bridge": (learned, replace("bert-without-a-bridge.fala"), (), ()),
        "refine": (replaced, refine, (), ()),
        "forget": (learned, forget, (), tuple(KNOWN[:5])),
        "rollback": (replaced, roll_back, (), ()),
    }


def _seen(folder: Path, operation: Operation) -> dict[str, Any]:
    """Do an operation once, with a second device that looks at the folder all along."""
    path = folder / "seen"
    states: list[str] = []
    told: list[int] = []
    kept: dict[str, str] = {}

    def look() -> None:
        with fala.Device.open(path) as device:
            if (here := answers_of(device)) not in states:
                states.append(here)

    if operation.start is not None:
        shutil.copytree(operation.start, path, symlinks=True)
        with fala.Device.open(path) as device:
            kept = examples_of(device)
        look()
    if operation.name == "rollback":  # what the earlier model said, before it learns the rest
        with fala.Device.open(folder / "learned") as device:
            states.append(answers_of(device))
    operation.act(path, lambda _: told.append(len(states) - 1), look)
    shutil.rmtree(path)
    return {"states": states, "told": told, "kept": kept, "modules": sorted(sys.modules)}


def found(operation: Operation, folder: Path, said: int, *, again: bool = True) -> str | None:
    """What is wrong with a folder in which an operation was interrupted; None if nothing is.

    Args:
        operation: The operation.
        folder: The folder; it is used up.
        said: How many acknowledgements there were.
        again: Whether to do the operation again, too.
    """
    try:
        with fala.Device.open(folder) as device:
            here, examples = answers_of(device), examples_of(device)
    except fala.DeviceError as error:
        if operation.start is not None or said:
            return f"does not open: {error}"
        operation.act(folder, lambda _: None, lambda: None)
        with fala.Device.open(folder) as device:
            here, examples = answers_of(device), examples_of(device)
    if here not in operation.states:
        return "answers neither as before nor as afterwards"
    place = operation.states.index(here)
    if said and place < operation.told[said - 1]:
        return "answers as before what was acknowledged"
    wrong = _examples(operation, examples, said)
    if wrong is None and again and operation.start is not None:
        operation.act(folder, lambda _: None, lambda: None)
        with fala.Device.open(folder) as device:
            after, examples = answers_of(device), examples_of(device)
        if place == 0 and after != operation.states[-1]:
            return "another try ends with other answers"
        wrong = _examples(operation, examples, len(operation.told))
        left = {file.name for file in (folder / "bundles").iterdir()}
        if wrong is None and (len(left) > 2 or any(name.endswith(".part") for name in left)):
            return f"leaves files behind: {sorted(left)}"
    return wrong


def _examples(operation: Operation, examples: dict[str, str], said: int) -> str | None:
    wanted = dict(operation.kept)
    added = list(operation.added)
    wanted.update(zip(added[:said], labels_of(added[:said]), strict=True))
    for text in operation.forgotten:
        if said and text in examples:
            return f"keeps what was forgotten: {text!r}"
        wanted.pop(text, None)
    there = [text in examples for text in operation.forgotten]
    if any(there) and not all(there):
        return "forgot half of what it was to forget"
    lost = [text for text, label in wanted.items() if examples.get(text) != label]
    return f"lost an example: {lost[0]!r}" if lost else None
