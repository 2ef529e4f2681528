"""The visitor's walk, and the laboratory of FaLA: real users' data and simulated devices.

Each name below is loaded at its first use: importing the package loads no library.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fala_sim.playground.releases import sample_release
    from fala_sim.playground.sample import sample_posts, sample_rows
    from fala_sim.records.frame import frame

#: The modules of the names.
_MODULES = {
    "frame": "records.frame",
    "sample_posts": "playground.sample",
    "sample_release": "playground.releases",
    "sample_rows": "playground.sample",
}

__all__ = ["frame", "sample_posts", "sample_release", "sample_rows"]

if not TYPE_CHECKING:  # for a type checker the module would have every name

    def __getattr__(name: str) -> object:
        """A name, loaded at its first use."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        """All public names."""
        return sorted({*globals(), *__all__})
