"""A share of the processor's time, by control groups (version 2) where they may be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

_PERIOD = 100_000  # microseconds, the kernel's own default

#: Where systems mount control groups: version 2 alone, or beside version 1.
MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


@contextmanager
def quota(
    cores: float, mounts: tuple[Path, ...] = MOUNTS, own: Path = Path("/proc/self/cgroup")
) -> Iterator[Path | None]:
    """A control group whose processes have so much of the processors' time.

    Args:
        cores: Cores' worth of time, a fraction as a rule.
        mounts: Where the hierarchy may be mounted.
        own: The kernel's file on the group of this process.

    Yields:
        The group's folder, for ``join``; None where this process may not make one.
    """
    parent = _parent(mounts, own)
    if parent is None:
        yield None
        return
    group = Path(mkdtemp(prefix="fala-sim-", dir=parent))
    try:
        (group / "cpu.max").write_text(f"{max(int(cores * _PERIOD), 1000)} {_PERIOD}\n")
        yield group
    finally:
        group.rmdir()


def join(group: Path, process: int) -> None:
    """Put a process into a group."""
    (group / "cgroup.procs").write_text(f"{process}\n")


def _parent(mounts: tuple[Path, ...], own: Path) -> Path | None:
    """A group that gives processor time to its children and in which we may make one."""
    if not own.is_file():
        return None
    for line in own.read_text(encoding="ascii").splitlines():
        if not line.startswith("0::"):
            continue
        for mount in mounts:
            here = mount / line[3:].lstrip("/")
            # Beside our own group, as a group with processes gives nothing to children; the root
            # of the hierarchy alone may have both.
            for place in (here.parent, here) if here != mount else (here,):
                given = place / "cgroup.subtree_control"
                if (
                    given.is_file()
                    and "cpu" in given.read_text(encoding="ascii").split()
                    and os.access(place, os.W_OK)
                    and os.access(place / "cgroup.procs", os.W_OK)
                ):
                    return place
    return None
