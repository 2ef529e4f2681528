"""FaLA: keep a user's personal model when the backbone under it is replaced."""

from fala.errors import DataError, FalaError

__all__ = ["DataError", "FalaError"]
