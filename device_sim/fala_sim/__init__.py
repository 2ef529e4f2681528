"""The demo and the benchmarks of FaLA: real users' data and simulated devices.

Each name below is loaded on its first use, so importing the package loads no library.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fala_sim.playground.releases import sample_release
    from fala_sim.playground.sample import sample_posts, sample_rows
    from fala_sim.records.frame import frame

#: The module that defines each name.
_MODULES = {
    "frame": "records.frame",
    "sample_posts": "playground.sample",
    "sample_release": "playground.releases",
    "sample_rows": "playground.sample",
}

__all__ = ["frame", "sample_posts", "sample_release", "sample_rows"]

if not TYPE_CHECKING:  # so that a type checker does not take every name for a member of the module

    def __getattr__(name: str) -> object:
        """Load a name on its first use."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        """Return all public names."""
        return sorted({*globals(), *__all__})
