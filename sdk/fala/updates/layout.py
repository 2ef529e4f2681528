"""Where things lie in a vendor's repository, for the vendor and the device."""

from __future__ import annotations

#: The folders of a repository, under its address; a device keeps its metadata under the same name.
METADATA = "metadata"
TARGETS = "targets"

#: What a release's product is called where nobody says.
DEFAULT_PRODUCT = "model"


def release_path(product: str) -> str:
    """The target that always is a product's newest release."""
    return f"{product}/release.fala"
