"""Signed updates: the client of The Update Framework, and the layout of a vendor's repository."""

from __future__ import annotations

#: The folders of a repository, under its address; a device keeps its metadata under the same name.
METADATA = "metadata"
TARGETS = "targets"

#: The product of a release whose vendor names none.
DEFAULT_PRODUCT = "model"


def release_path(product: str) -> str:
    """Return the path of the target that always is a product's newest release."""
    return f"{product}/release.fala"
