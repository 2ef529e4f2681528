"""The laboratory of FaLA: real users' data and simulated devices."""

from fala_sim.frame import frame

__all__ = ["frame"]
