"""Real devices as data: each figure with the place where it was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fala_sim.situation import Example

MIB = 1024**2

#: High-Performance LINPACK: a dense system solved in float64 on all cores, measured on the device.
LINPACK = "LINPACK fp64"
#: Fused multiply-adds in float32 on all cores, measured on the device: no program is faster.
PEAK = "peak fp32"

_HPL = "github.com/geerlingguy/top500-benchmark, README, Results"
_SBC = "github.com/geerlingguy/sbc-reviews"
_FMA = "github.com/hiroog/vfpbench, log"
_HEAP = (
    "dalvik.vm.heapsize, the most to which Android lets the heap of one app grow: "
    "github.com/LineageOS/android_frameworks_native, build"
)


@dataclass(frozen=True)
class Figure:
    """A published number.

    Attributes:
        value: In bytes, cores or GFLOP/s.
        source: Who published it, and where.
    """

    value: float
    source: str


@dataclass(frozen=True)
class Profile:
    """A class of devices, by one that stands for it.

    Attributes:
        name: On the command line and in records.
        title: In tables.
        cores: The processor's cores, of all kinds.
        memory: What an app may take, in bytes.
        storage: Room for the app's files, in bytes; None where none was published, as on boards
            with a memory card of the owner's choice.
        speeds: GFLOP/s by kind (``LINPACK``, ``PEAK``), the more telling first; may be empty.
    """

    name: str
    title: str
    cores: Figure
    memory: Figure
    storage: Figure | None = None
    speeds: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What a device's process may take.

    Attributes:
        device: The device's folder.
        cores: How many.
        memory: In bytes.
        storage: Of the device's folder, in bytes; None has no limit.
        trains: Whether a transformer is trained: its libraries count as loaded before.
    """

    device: Path
    cores: int
    memory: int
    storage: int | None
    trains: bool


@dataclass(frozen=True)
class Work:
    """What a device's process does.

    Attributes:
        name: ``"replace"``, or a trained method's: one epoch over a few documents.
        old: The release that it has.
        new: The one that comes.
        examples: The user's.
        labels: Their names.
        transformer: The new backbone as Hugging Face has it, for what trains it.
        seed: Of every random choice.
    """

    name: str
    old: Path
    new: Path
    examples: Sequence[Example]
    labels: Sequence[str]
    transformer: Path | None = None
    seed: int = 0


#: From the least memory to the most.
PROFILES = (
    Profile(
        "raspberry-pi-cm0",
        "Raspberry Pi Compute Module Zero (512 MB)",
        cores=Figure(4, f"{_SBC}/issues/98 (4 at 1 GHz)"),
        memory=Figure(228 * MIB, f"{_SBC}/issues/98: 425 MiB less 197 MiB that the system used"),
        storage=Figure(10.3e9, f"{_SBC}/issues/98: 15 GB less 4.7 GB that the system used"),
        # No speed: the LINPACK figure published of its chip (Zero 2 W, 0.370 GFLOP/s) is of a
        # matrix that nearly fills the memory.
    ),
    Profile(
        "android-low",
        "ASUS ZenFone 3 Max ZC553KL (Snapdragon 430)",
        cores=Figure(8, f"{_FMA}, MSM8937 ZenFone3MaxZC553KL"),
        memory=Figure(512 * MIB, f"{_HEAP}/phone-xhdpi-2048-dalvik-heap.mk (phones with 2 GB)"),
        speeds={PEAK: Figure(78.350, f"{_FMA}, MSM8937 ZenFone3MaxZC553KL (2020-08-10)")},
    ),
    Profile(
        "android-middle",
        "Google Pixel 4a 5G (Snapdragon 765G)",
        cores=Figure(8, f"{_FMA}, 765G Pixel4a5G"),
        memory=Figure(512 * MIB, f"{_HEAP}/phone-xhdpi-6144-dalvik-heap.mk (phones with 6 GB)"),
        speeds={PEAK: Figure(157.981, f"{_FMA}, 765G Pixel4a5G (2024-08-10)")},
    ),
    Profile(
        "android-high",
        "Google Pixel 8 (Tensor G3)",
        cores=Figure(9, f"{_FMA}, Google Tensor G3 Pixel 8"),
        memory=Figure(512 * MIB, f"{_HEAP}/phone-xhdpi-8192-dalvik-heap.mk (phones with 8 GB)"),
        storage=Figure(128e9, "expertreviews.co.uk, Google Pixel 8 review (the smaller model)"),
        speeds={PEAK: Figure(281.873, f"{_FMA}, Google Tensor G3 Pixel 8 (2024-07-06)")},
    ),
    Profile(
        "iphone-5s",
        "Apple iPhone 5s (A7)",
        cores=Figure(2, f"{_FMA}, Apple A7 iPhone 5S"),
        memory=Figure(
            646 * MIB,
            "gist.github.com/psobko/ef347561db658b60b8da: where the system ends an app, of 1024 MB",
        ),
        speeds={PEAK: Figure(40.146, f"{_FMA}, Apple A7 iPhone 5S (2020-12-29)")},
    ),
    Profile(
        "raspberry-pi-4",
        "Raspberry Pi 4 Model B (2 GB)",
        cores=Figure(4, f"{_SBC}/issues/4 (4 at 1.8 GHz)"),
        memory=Figure(
            1954 * MIB,
            f"raspberrypi.com, Raspberry Pi 4 Model B, specifications: 2 GB; {_SBC}/issues/4: "
            "the system used 94 MiB",
        ),
        speeds={LINPACK: Figure(11.889, f"{_HPL}: Raspberry Pi 4 (BCM2711 @ 1.8 GHz)")},
    ),
    Profile(
        "n100-box",
        "LattePanda Mu (Intel N100, 8 GB)",
        cores=Figure(4, f"{_FMA}, Intel(R) N100"),
        memory=Figure(8192 * MIB, f"{_SBC}/issues/42: 8 GB, no limit for one program"),
        storage=Figure(64e9, f"{_SBC}/issues/42"),
        speeds={
            LINPACK: Figure(62.851, f"{_HPL}: LattePanda Mu (1x N100 @ 3.4 GHz)"),
            PEAK: Figure(185.023, f"{_FMA}, Intel(R) N100 (2024-06-15)"),
        },
    ),
)
