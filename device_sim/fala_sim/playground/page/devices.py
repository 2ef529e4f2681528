"""The real devices of the page: the user's device, and three for comparison.

``mine`` is the user's device. When the vendor ships a release, a copy of its folder keeps the old
backbone (``old``). Another copy, from just after the replacement, is never refined (``instant``).
``vendor`` has the new release and no label of the user.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from fala import Budget, Device, Report
from fala.base.errors import DeviceError
from fala_sim.playground.releases import sample_release
from fala_sim.records.meter import folder_size

#: Columns of the page, in order.
COLUMNS = ("old", "vendor", "instant", "mine")


class DemoDevices:
    """The device folders of a visit, for one caller at a time.

    Args:
        folder: Folder that contains them.
        documents: Posts that the user's device has from the beginning, without labels.
    """

    def __init__(self, folder: Path, documents: Sequence[str]) -> None:
        self._folder = folder
        self.old_release, self.new_release = sample_release("glove"), sample_release("bert")
        self.devices: dict[str, Device] = {"mine": self._open("mine", self.old_release)}
        stored = {each.example for each in self.mine.examples()}
        # At first all devices are missing; after a kill, some are.
        if missing := [text for text in documents if text not in stored]:
            self.mine.remember(missing)

    @property
    def mine(self) -> Device:
        """The user's device."""
        return self.devices["mine"]

    @property
    def replaced(self) -> bool:
        """Whether all devices exist."""
        return len(self.devices) == len(COLUMNS)

    @property
    def rolled_back(self) -> bool:
        """Whether the user's device has left the new release."""
        return self.replaced and self.mine.status().rolled_back

    def labelled(self) -> dict[str, int]:
        """Return the labels on the user's device, by post."""
        return {
            str(stored.example): int(stored.label == 1)
            for stored in self.mine.examples(labelled=True)
        }

    def ship(self) -> Report | None:
        """Install the new release, unless it is installed; an interrupted call is resumed.

        Returns:
            The report of the replacement, or None if it was done before.
        """
        self._copy("old")
        self.devices["vendor"] = self._open("vendor", self.new_release)
        report = None
        if not self.mine.status().can_roll_back:
            report = self.mine.replace(self.new_release, Budget(0))
        self._copy("instant")
        return report

    def passes(self) -> int:
        """Return how many of the user's posts the new backbone has encoded, after a replacement."""
        return self.mine.refine(Budget(0)).counts.representatives

    def size(self) -> int:
        """Return the size of the user's folder in bytes."""
        return folder_size(self._folder / "mine")

    def close(self) -> None:
        """Close all devices."""
        for device in self.devices.values():
            device.close()

    def erase(self) -> None:
        """Delete all open devices, and overwrite their contents."""
        for device in self.devices.values():
            device.erase()
        self.devices.clear()

    def _open(self, name: str, release: Path) -> Device:
        """Open a device, or create it, also after an earlier creation was killed."""
        path = self._folder / name
        try:
            return Device.open(path)
        except DeviceError as unreadable:
            try:
                return Device.create(path, release)
            except DeviceError:
                raise unreadable from None  # a device exists, but cannot be opened

    def _copy(self, name: str) -> None:
        """Copy the user's folder under another name, whole or not at all, and open the copy."""
        target = self._folder / name
        if not target.is_dir():
            part = target.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            self.mine.close()  # nobody may write to the folder during the copy
            try:
                shutil.copytree(self._folder / "mine", part)
                part.rename(target)
            finally:
                self.devices["mine"] = Device.open(self._folder / "mine")
        self.devices[name] = Device.open(target)


def remove_devices(folder: Path) -> None:
    """Delete the remaining devices of a visit; no process may have them open."""
    for name in COLUMNS:
        for path in (folder / name, (folder / name).with_suffix(".part")):
            if path.is_dir():
                shutil.rmtree(path)
