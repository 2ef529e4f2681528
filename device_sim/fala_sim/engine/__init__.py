"""Run jobs on this machine or on a Ray cluster, and return their outputs to the driver."""

from __future__ import annotations

import os

from fala import DataError
from fala_sim.engine.job import Engine
from fala_sim.engine.local import LocalEngine
from fala_sim.engine.spreading import spread

__all__ = ["open_engine", "spread"]


def open_engine(name: str, *, jobs: int | None, address: str | None) -> Engine:
    """Return the engine ``"local"`` or ``"ray"``.

    Args:
        name: Name of the engine.
        jobs: Number of jobs that run in parallel on this machine; None means one per core.
        address: Address of a Ray cluster's head; None starts a cluster on this machine.

    Raises:
        DataError: The address is given without the Ray engine, or the cluster cannot be reached.
    """
    jobs = jobs or os.cpu_count() or 1
    if name == "ray":
        from fala_sim.engine.cluster import RayEngine

        return RayEngine(address, jobs)
    if address is not None:
        raise DataError("--address is the address of a Ray cluster; use it with --engine ray")
    return LocalEngine(jobs)
