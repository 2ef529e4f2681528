"""Run jobs on this machine or on a Ray cluster, and return their outputs to the driver."""

from __future__ import annotations

from fala import DataError
from fala_sim.engine.local import LocalEngine
from fala_sim.engine.task import Engine

#: The engines by name.
ENGINES = ("local", "ray")


def open_engine(name: str, *, jobs: int, address: str | None) -> Engine:
    """An engine by name.

    Args:
        name: One of ``ENGINES``.
        jobs: How many jobs run at once on this machine.
        address: Of a Ray cluster's head; None starts a cluster on this machine.

    Raises:
        DataError: There is none of that name, or it cannot be reached.
    """
    if name == "local":
        if address is not None:
            raise DataError("--address is the address of a Ray cluster; use it with --engine ray")
        return LocalEngine(jobs)
    if name == "ray":
        from fala_sim.engine.cluster import RayEngine

        return RayEngine(address, jobs)
    raise DataError(f"no engine {name!r}; one of {', '.join(ENGINES)}")
