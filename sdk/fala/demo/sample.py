"""The built-in data of ``fala-replace``: a synthetic sample; see ``fala.vendor.sample``."""

from fala.vendor.sample import sample_rows

__all__ = ["sample_rows"]
