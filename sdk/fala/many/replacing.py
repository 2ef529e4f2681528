"""Replace for all: the personal model of every device of a machine is carried to a new release.

One device at a time in each process. Whatever is interrupted is finished by the next call: a
device that has the release is not replaced again, and one whose budget is not spent goes on.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args

from fala.arguments import (
    check_adapter_name,
    check_budget,
    check_folder,
    check_progress,
    check_source,
)
from fala.backbones import OnnxEncoder
from fala.backbones.external import Encoder, Encoders
from fala.backbones.onnx_encoder import cores
from fala.base import errors
from fala.base.errors import (
    BundleDigestError,
    DataError,
    DeviceError,
    FalaError,
    WorseModelError,
    check_flag,
    check_word,
    counted,
    shown,
    type_of,
)
from fala.base.examples import listed
from fala.base.files import FULL_DISK, check_path
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust, key_bytes
from fala.device import Device
from fala.many.cache import EncodingCache, Passes, cached
from fala.many.releases import Releases
from fala.many.workers import in_processes
from fala.personal.compare import Accept
from fala.personal.gather import Reading
from fala.personal.run import Budget, Progress, Run
from fala.report import Plain, Report
from fala.slots.admit import Signed, admit, admit_loaded
from fala.slots.child import forbidden
from fala.slots.folder import Snapshot
from fala.slots.installing import COPIES, release_files
from fala.slots.release import Release, open_bundle
from fala.slots.switching import opened
from fala.slots.validation import VALIDATED, needs_signature

#: Called as the built-in ``map`` is, with a function and items that can be pickled; yields the
#: results in any order.
Map: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]

#: Bytes of embeddings that a process keeps: 29,000 texts of 1,152 numbers.
_CACHE_BYTES = 1 << 27
#: Devices in a row without room on the disk, after which no further one is tried.
_MOST_FULL = 3


@dataclass(frozen=True)
class Failure(Plain):
    """A device that could not be replaced.

    Attributes:
        path: Its folder.
        error: The type of the error.
        message: Its message.
    """

    path: str
    error: str
    message: str


@dataclass(frozen=True)
class ReplacedAll(Plain):
    """What ``fala.replace_all`` has done.

    Attributes:
        new: The new release, by product, version and backbone.
        devices: All devices.
        replaced: Those that were replaced now.
        refined: Those that had the release, and were refined with what was left of the budget.
        already: Those that had the release, with nothing left to do.
        went_back: Those that went back from the release earlier, and keep their previous one.
        refused: Those that keep their release by ``accept``.
        personal: How many of the replaced and refined ones have a personal model now; see
            ``Report.decision``.
        calibrated: How many have the vendor's with the user's slope and bias.
        vendor: How many have the vendor's as it is.
        better: How many users are better off, beyond noise; see ``Comparison.worse``.
        no_worse: How many are no worse off.
        worse: How many are worse off.
        unknown: Of how many it is not known.
        forward_passes: Texts that the new backbone has encoded; see ``Report.forward_passes``.
        shared: Further texts, whose embeddings were computed for another user.
        failures: The devices that could not be replaced.
        seconds: Wall time.
    """

    new: str
    devices: int
    replaced: int = 0
    refined: int = 0
    already: int = 0
    went_back: int = 0
    refused: int = 0
    personal: int = 0
    calibrated: int = 0
    vendor: int = 0
    better: int = 0
    no_worse: int = 0
    worse: int = 0
    unknown: int = 0
    forward_passes: int = 0
    shared: int = 0
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0

    _derived = "failed", "not_reached", "a_second"

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        left = self.devices - self.replaced - self.refined - self.failed
        return (
            f"{self.new} was installed on {self.replaced} of {counted(self.devices, 'device')}; "
            f"{self.refined} were refined, {left} left as they were, and {self.failed} failed. The "
            f"user is better off on {self.better}, no worse off on {self.no_worse} and worse off "
            f"on {self.worse}; on {self.unknown} it is not known."
        )

    @property
    def failed(self) -> int:
        """How many devices could not be replaced."""
        return len(self.failures)

    @property
    def not_reached(self) -> int:
        """How many devices are left after a cancellation."""
        done = self.replaced + self.refined + self.already + self.went_back + self.refused
        return self.devices - done - self.failed

    @property
    def a_second(self) -> float:
        """Devices a second."""
        return (self.devices - self.not_reached) / self.seconds if self.seconds else 0.0


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
    encoder: Encoder | Mapping[str, Encoder] | None = None,
    encoder_name: str | None = None,
    dimension: int | None = None,
    workers: int | Map | None = None,
    progress: Progress | None = None,
    adapters: Mapping[str, str | os.PathLike[str]] | None = None,
) -> ReplacedAll:
    """Replace the backbone of many devices, and carry every personal model over.

    Each device is replaced as by ``Device.replace``, and gets the same model. It may be open in
    other processes: it predicts throughout, and labels that it learns meanwhile are kept. The
    release is audited and validated once. A text that several users have is encoded once a process:
    its embedding is kept in memory, under a digest, and never written anywhere but to the devices
    that have the text.

    A call that was interrupted or killed is finished by the next one. A device that has the release
    already is not replaced again; if the budget allows more texts than the release has encoded
    there, it is refined. A device that went back from the release keeps its previous one.

    Args:
        devices: The devices' folders.
        release: The new release's file; see ``Device.replace``. None for the app's own ``encoder``,
            with each device's own labels.
        releases: Where the release is kept once for all of them; see ``Device.open``. None gives
            each device a copy.
        budget: Limits of the cost for each device; None is ``Budget()``. A text counts for the
            device that has it, even if it was encoded for another one.
        accept: Which models may be installed; these three are those of ``Device.replace``.
        allow_older: Whether an older release may be installed.
        trust: The key that must have signed it.
        key: Returns the key of a device by its folder; see ``Device.create``.
        encoder: The app's own encoder. Other processes import the function by its name; one that
            they cannot import is called here, in one process.
        encoder_name: The encoder's name.
        dimension: The length of its embeddings.
        workers: How many processes, one device at a time in each; None takes one a core, and 1 only
            this process, as where no other can be started. Or a function that is called as the
            built-in ``map`` is, and may use other machines, for example by Ray.
        progress: Called with ``"devices"``, the devices that are done and their number. If it
            returns False, no further device is begun.
        adapters: The files of the vendor's adapters for the new backbone, by the names of their
            tasks; each device takes those of its tasks.

    Returns:
        What was done. A device that fails does not stop the others, and is listed in ``failures``.

    Raises:
        BundleError: The release cannot be trusted.
        DataError: An argument cannot be used.
        DeviceError: The disk is full, or the processes end one after another; run it again then.

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
    shared = release_files(releases)
    Encoders(encoder)  # raises what is wrong with it
    if own := check_source(release, None if release else encoder, encoder_name, dimension, trust):
        encoder_name, encoder = own.name, own.function and {own.name: own.function}
    plan = _Plan(
        None if release is None else check_path(release, "release").absolute(),
        shared.path.absolute() if isinstance(shared, Releases) else None,
        check_budget(budget),
        cast(Accept, check_word(accept, get_args(Accept), "accept")),
        check_flag(allow_older, "allow_older"),
        None if trust is None else key_bytes(trust),
        encoder, encoder_name, dimension, _checked_adapters(adapters),
    )  # fmt: skip
    run = Run(progress=check_progress(progress))
    call = _map_of(workers, plan, len(folders))
    items, failures = _with_keys(folders, key)
    carry = _Carry(plan)
    try:
        done = _Done(carry.admit(), len(folders), failures)
        with run:
            run.report("devices", done.count, len(folders))
            # Closed in any case: other processes end then.
            with contextlib.closing(_outcomes(call, carry, items)) as outcomes:
                while not run.cancelled and (outcome := next(outcomes, None)) is not None:
                    done.add(outcome)
                    run.report("devices", done.count, len(folders))
    finally:
        carry.close()
    if not run.cancelled:
        done.add_lost(folders)
    return done.report(run.total()["total"])


@dataclass(frozen=True)
class _Plan:
    """What is done with every device; see ``replace_all``."""

    release: Path | None
    releases: Path | None
    budget: Budget
    accept: Accept
    allow_older: bool
    trust: bytes | None
    encoder: Encoder | Mapping[str, Encoder] | None
    encoder_name: str | None
    dimension: int | None
    adapters: Mapping[str, Path]


@dataclass(frozen=True)
class _Item:
    """A device's folder, and its key."""

    path: Path
    key: bytes | None = field(repr=False)


@dataclass(frozen=True)
class _Outcome:
    """What became of a device.

    Attributes:
        path: Its folder.
        kind: The field of ``ReplacedAll`` that counts it; ``"stop"`` where no device can be
            replaced.
        report: Of a device that was replaced or refined.
        passes: Texts that the release has encoded for it.
        error: The type of an error, and its message.
    """

    path: Path
    kind: str
    report: Report | None = None
    passes: int = 0
    error: tuple[str, str] = ("", "")


class _Carry:
    """Carries devices over to a release; another process gets a copy.

    Args:
        plan: What is done.
        admitted: The release's digest, and whether it has what only a signed one may have, once
            it is admitted.
    """

    def __init__(self, plan: _Plan, admitted: tuple[str, bool] = ("", False)) -> None:
        self._plan, self._admitted = plan, admitted
        self._cache = EncodingCache(_CACHE_BYTES)
        self._encoder = cached(plan.encoder, self._cache)
        self._releases = COPIES if plan.releases is None else Releases(plan.releases)
        self._release: Release | None = None
        #: The devices' previous releases, which would else be read for each device.
        self._previous: dict[str, Bundle] = {}

    def __reduce__(self) -> tuple[type[_Carry], tuple[_Plan, tuple[str, bool]]]:
        return _Carry, (self._plan, self._admitted)

    def admit(self) -> str:
        """Admit the release: audited and validated, unless it is kept for several devices already.

        Returns:
            Its name; without a release the encoder's.

        Raises:
            BundleError: It cannot be trusted.
        """
        if self._plan.release is None:
            return str(self._plan.encoder_name)
        origin, encoders = Signed(self._plan.trust), Encoders(self._encoder)
        release = admit_loaded(self._plan.release, origin, encoders, self._releases)
        if isinstance(self._releases, Releases):
            self._releases.keep(release.bundle)
        self._admitted = release.bundle.digest, needs_signature(release.bundle)
        return release.name

    def _open(self, path: Path) -> None:
        """Load the release for all devices of this process.

        Raises:
            BundleError: It has changed since it was admitted.
        """
        origin, encoders = Signed(self._plan.trust), Encoders(self._encoder)
        release = admit(path, origin, encoders, self._releases)
        self._check(release.bundle)
        digest, needed = self._admitted
        VALIDATED[digest] = needed
        backbone = release.backbone.loaded
        if isinstance(backbone, OnnxEncoder):
            # No encoder of an app has this name.
            backbone.cached = partial(self._cache.encode, backbone="\0")
        self._release = release

    def close(self) -> None:
        """Let the release go, with its embeddings."""
        if self._release is not None and isinstance(self._release.backbone.loaded, OnnxEncoder):
            self._release.backbone.loaded.cached = None
        self._release = None
        self._previous.clear()

    def __call__(self, item: _Item) -> _Outcome:
        """Carry a device over; its error is an outcome."""
        try:
            if (path := self._plan.release) is not None:
                if self._release is None:
                    self._open(path)
                self._check(open_bundle(path))
        except FalaError as error:
            return _Outcome(item.path, "stop", error=_named(error))
        try:
            return self._carried(item)
        except WorseModelError:
            return _Outcome(item.path, "refused")
        except Exception as error:
            return _Outcome(item.path, "failed", error=_named(error))

    def _check(self, bundle: Bundle) -> None:
        """Check that the release's file is the one that was admitted.

        Raises:
            BundleDigestError: It is not.
        """
        if bundle.digest != self._admitted[0]:
            raise BundleDigestError(f"{bundle.path}: it was changed meanwhile; run it again")

    def _is_new(self, bundle: Bundle) -> bool:
        """Whether a device's release is the new one, or is for the app's new encoder."""
        admitted, name = self._admitted[0], self._plan.encoder_name
        return bundle.digest == admitted if self._plan.release else bundle.encoder == name

    def _carried(self, item: _Item) -> _Outcome:
        plan, path, key = self._plan, item.path, item.key
        counting = Passes(self._cache)
        with Device.open(
            path, key=None if key is None else lambda: key, encoder=self._encoder,
            releases=self._releases,
        ) as device:  # fmt: skip
            folder = device._folder
            snapshot = opened(device._own)
            self._previous[snapshot.release.bundle.digest] = snapshot.release.bundle
            if self._is_new(snapshot.release.bundle):
                budget = _left(snapshot, plan.budget)
                if budget is None:
                    return _Outcome(path, "already")
                report = device.refine(budget, progress=counting)
                return _Outcome(path, "refined", report, counting.encoded)
            before = device._own.previous(snapshot)
            if before is not None and self._is_new(before.release.bundle):
                return _Outcome(path, "went_back")
            report = device.replace(
                plan.release, plan.budget, accept=plan.accept, trust=plan.trust,
                encoder=None if plan.release else self._encoder, encoder_name=plan.encoder_name,
                dimension=plan.dimension, allow_older=plan.allow_older, progress=counting,
                adapters={
                    name: plan.adapters[name]
                    for name in folder.store.slots.adapters() if name in plan.adapters
                },
            )  # fmt: skip
            return _Outcome(path, "replaced", report, counting.encoded)


class _Done:
    """The devices that are done.

    Args:
        name: The release's.
        total: The number of all devices.
        failures: Those that have failed already; others are added.
    """

    def __init__(self, name: str, total: int, failures: list[Failure]) -> None:
        self.failures = failures
        self._name, self._total = name, total
        self._paths: set[Path] = set()
        self._counts: Counter[str] = Counter()
        self._full = 0

    @property
    def count(self) -> int:
        """How many are done."""
        return len(self._paths) + len(self.failures)

    def add(self, outcome: _Outcome) -> None:
        """Count a device.

        Raises:
            FalaError: No further one can be replaced.
        """
        kind, message = outcome.error
        if outcome.kind == "stop":
            raise getattr(errors, kind, DeviceError)(message)
        if outcome.kind == "failed":
            self.failures.append(Failure(str(outcome.path), kind, message))
            self._full = self._full + 1 if FULL_DISK in message else 0
            if self._full == _MOST_FULL:
                raise DeviceError(
                    f"{message}; {self.count} of {self._total} devices are done, run it again then"
                )
            return
        self._full = 0
        self._paths.add(outcome.path)
        self._counts[outcome.kind] += 1
        if outcome.report is not None:
            report = outcome.report
            self._counts[report.decision] += 1
            self._counts[report.judgement] += 1
            further = sum(each.forward_passes for each in report.adapters.values())
            self._counts["forward_passes"] += min(outcome.passes, report.forward_passes) + further
            self._counts["shared"] += max(report.forward_passes - outcome.passes, 0)

    def add_lost(self, folders: Sequence[Path]) -> None:
        """Count the devices without an outcome: their processes ended."""
        known = self._paths | {Path(failure.path) for failure in self.failures}
        self.failures += [
            Failure(
                str(folder), "DeviceError",
                f"{folder}: its process ended (of too little memory, often); run it again, with "
                "fewer processes",
            )
            for folder in folders
            if folder not in known
        ]  # fmt: skip

    def report(self, seconds: float) -> ReplacedAll:
        """What was done."""
        return ReplacedAll(
            self._name, self._total, **self._counts, failures=tuple(self.failures), seconds=seconds
        )


def _with_keys(
    folders: Sequence[Path], key: Callable[[Path], bytes] | None
) -> tuple[list[_Item], list[Failure]]:
    """The devices with their keys, and those for which the app's function fails.

    Raises:
        DataError: It is no function.
    """
    if key is None:
        return [_Item(folder, None) for folder in folders], []
    if not callable(key):
        raise DataError(f"key is a function of a device's folder, not {shown(key)}")
    items, failures = list[_Item](), list[Failure]()
    for folder in folders:
        try:
            value = key(folder)
            if not isinstance(value, bytes | bytearray):
                raise DataError(f"{folder}: key returns bytes, not {type_of(value)}")
            items.append(_Item(folder, bytes(value)))
        except Exception as error:  # noqa: PERF203 - one of a device
            failures.append(Failure(str(folder), *_named(error)))
    return items, failures


def _map_of(workers: int | Map | None, plan: _Plan, devices: int) -> Map:
    """The function that calls another for every device, here or elsewhere.

    Raises:
        DataError: ``workers`` is neither a number of processes nor such a function.
    """
    if callable(workers):
        return workers
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int)):
        raise DataError(f"workers is a number of processes, or a map, not {shown(workers)}")
    if workers is not None and workers < 1:
        raise DataError(f"workers is 1 or more, not {shown(workers)}")
    count = min(workers or cores(), devices)
    if count < 2 or forbidden() or not _importable(plan.encoder):
        return map
    return partial(in_processes, count=count)


def _checked_adapters(adapters: Mapping[str, str | os.PathLike[str]] | None) -> Mapping[str, Path]:
    """The adapters' files by their tasks.

    Raises:
        DataError: They are not such files.
    """
    if adapters is not None and not isinstance(adapters, Mapping):
        raise DataError(f"adapters are files by the names of their tasks, not {shown(adapters)}")
    return {
        check_adapter_name(name): check_path(file, "adapters").absolute()
        for name, file in (adapters or {}).items()
    }


def _importable(encoder: object) -> bool:
    """Whether another process can import the app's encoder."""
    try:
        return b"__main__" not in pickle.dumps(encoder)
    except Exception:  # a lambda, an open session: pickle has many errors
        return False


def _outcomes(call: Map, carry: _Carry, items: Sequence[_Item]) -> Generator[_Outcome, None, None]:
    outcomes = iter(call(carry, items))
    try:
        yield from outcomes
    finally:
        if close := getattr(outcomes, "close", None):
            close()


def _left(snapshot: Snapshot, budget: Budget) -> Budget | None:
    """What a device's release may still encode of a budget; None where there is nothing."""
    reading = Reading(snapshot)
    encoded = reading.embeddings(snapshot.backbone)
    pending = sum(text not in encoded for text in reading.texts())
    left = budget.passes(bool(snapshot.release.bridges)) - len(encoded)
    if left <= 0 or not pending or snapshot.release.static or not reading.store.texts.kept:
        return None
    return Budget(left, budget.seconds)


def _named(error: Exception) -> tuple[str, str]:
    """An error's type and message; of one that is not FaLA's its place, as it may quote a text."""
    kind = type(error).__name__
    if isinstance(error, FalaError):
        return kind, str(error)
    *_, frame = traceback.extract_tb(error.__traceback__)
    return kind, f"{kind} in line {frame.lineno} of {Path(frame.filename).name}"
