"""Where jobs run: on this machine, or on a Ray cluster; what they give comes back to the driver."""

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
        jobs: How many jobs at once where they are of this machine alone.
        address: Of a Ray cluster's head; None starts one of this machine.

    Raises:
        DataError: There is none of that name, or it cannot be reached.
    """
    if name == "local":
        if address is not None:
            raise DataError("--address: of a Ray cluster; ask for --engine ray with it")
        return LocalEngine(jobs)
    if name == "ray":
        from fala_sim.engine.cluster import RayEngine

        return RayEngine(address, jobs)
    raise DataError(f"no engine {name!r}; one of {', '.join(ENGINES)}")
