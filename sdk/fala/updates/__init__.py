"""Signed updates: The Update Framework's client, and the layout of a vendor's repository."""

from __future__ import annotations

#: The folders of a repository, under its address; a device keeps its metadata under the same name.
METADATA = "metadata"
TARGETS = "targets"

#: A release's product if the vendor names none.
DEFAULT_PRODUCT = "model"


def release_path(product: str) -> str:
    """Return the target that always is a product's newest release."""
    return f"{product}/release.fala"
