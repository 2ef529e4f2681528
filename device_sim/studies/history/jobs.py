"""Jobs for one user's device through a vendor's releases, while labels arrive."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fala import Budget, DataError, Device
from fala.model.heads import PersonalModel
from fala_sim.data.users import User
from fala_sim.engine.job import Engine, Log
from fala_sim.experiments import people
from fala_sim.experiments.people import Experiment
from fala_sim.experiments.plan import PeoplePlan
from fala_sim.experiments.runner import Made, Records, timed
from fala_sim.experiments.subject import Subject
from fala_sim.methods.fala_shipped import replace_within
from fala_sim.methods.quality import label_figures, positions
from fala_sim.methods.registry import SHIPPED
from fala_sim.prepare.measured import MeasuredRelease
from fala_sim.prepare.releases import load_prepared
from fala_sim.records.store import RecordKey, RecordKind

#: The successive releases; the last is the plan's new backbone. `fala-sim models get` downloads
#: them.
RELEASES = ("minilm-l3", "minilm", "mpnet")

#: Forward passes of each replacement, by the record's variant.
PASSES = {"0": 0, "20": 20, "all": sys.maxsize}


@timed
def history(
    key: RecordKey, path: Path, through: Sequence[Path], done: frozenset[RecordKey]
) -> Records:
    """Run a device through all releases, and for comparison a device that begins at each release.

    A part of the user's labels is learned before each release. Devices are compared with the same
    labels.

    Args:
        key: Key of the records, without their variant.
        path: The division prepared with the first release as ``old``.
        through: The division prepared with each next release as ``new``, with bridges from all
            earlier ones.
        done: Keys that are recorded already.
    """
    subject = Subject.of(key, path)
    first, later = subject.prepared.installed, [load_prepared(file).shipped for file in through]
    life = _Life(subject.user, [first, *later])
    begun = [life.begun(number, number) for number in range(len(life.releases))]
    for variant, passes in PASSES.items():
        if key.of(variant) not in done:
            yield Made(key.of(variant), subject.about() | life.carried(passes, begun))


@dataclass(frozen=True)
class _Life:
    """A user and the successive releases; the device begins with the first."""

    user: User
    releases: Sequence[MeasuredRelease]

    def begun(self, first: int, last: int, passes: int = 0) -> dict[str, float | None]:
        """Return the figures of a device that begins at one release and goes directly to another.

        Args:
            first: Number of the first release; the device has the labels of the last one.
            last: Number of the last release; there is no replacement if it is the first.
            passes: Number of forward passes of the replacement.
        """
        with (
            TemporaryDirectory(prefix="fala-") as folder,
            Device.create(Path(folder) / "device", self.releases[first].path) as device,
        ):
            for part in range(last + 1):
                self._learn(device, part)
            if first != last:
                replace_within(device, self.releases[last].path, Budget(passes))
            return self._figures(last, device.model)

    def carried(self, passes: int, begun: Sequence[object]) -> dict[str, Any]:
        """Return the figures after each release of a device that goes through all of them.

        Args:
            passes: Number of forward passes of each replacement.
            begun: The figures of ``begun`` for each release.
        """
        steps: list[dict[str, Any]] = []
        with TemporaryDirectory(prefix="fala-") as temporary:
            folder = Path(temporary) / "device"
            with Device.create(folder, self.releases[0].path) as device:
                for number, release in enumerate(self.releases):
                    self._learn(device, number)
                    spent, decision = 0, None
                    if number:
                        report = replace_within(device, release.path, Budget(passes))
                        spent, decision = report.forward_passes, report.decision
                    steps.append(
                        {
                            "backbone": release.name,
                            "labels": sum(map(len, self._parts()[: number + 1])),
                            "scores": self._figures(number, device.model),
                            "begun": begun[number],
                            "vendor": self._figures(number, release.head.vendor_model()),
                            "forward_passes": spent,
                            "decision": decision,
                            # The bundles are not counted, because they are the vendor's.
                            "stored_bytes": sum(
                                file.stat().st_size for file in folder.glob("store.*")
                            ),
                        }
                    )
                last = len(self.releases) - 1
                device.rollback()
                back = self._figures(last - 1, device.model)
                replace_within(device, self.releases[last].path, Budget(0))
                forward = self._figures(last, device.model)
        return {
            "steps": steps,
            "rolled_back": back,
            "forward_again": forward,
            "skipped": self.begun(0, last, passes),
        }

    def _learn(self, device: Device, part: int) -> None:
        rows = self._parts()[part]
        if rows:
            device.learn(
                [self.user.train[row] for row in rows],
                [self.user.train_labels[row] for row in rows],
            )

    def _parts(self) -> list[range]:
        """Return the user's examples in their order, in as many parts as there are releases."""
        count, parts = len(self.user.train), len(self.releases)
        return [range(count * part // parts, count * (part + 1) // parts) for part in range(parts)]

    def _figures(self, number: int, model: PersonalModel) -> dict[str, float | None]:
        release = self.releases[number]
        scores = release.logits(model, self.user.test)
        return label_figures(scores, positions(self.user.test_labels, release.head.labels))


EXPERIMENTS = (
    Experiment(
        "history",
        history,
        methods=lambda _: [SHIPPED],
        variants=lambda _: PASSES,
        through=RELEASES,
    ),
)


def run(plan: PeoplePlan, _kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:
    """Run the missing lives of a plan's people; see ``Family.run``.

    Raises:
        DataError: The plan's new backbone is not the last release.
    """
    last = RELEASES[-1]
    if plan.new != last:
        raise DataError(
            f"--new {plan.new}: the last release of this study is {last}; add --new {last}"
        )
    return people.run(plan, EXPERIMENTS, engine, log)
