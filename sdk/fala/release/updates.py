"""What a vendor publishes and signs releases with, and where they lie in a repository."""

from fala.bundle.manifest import MAX_VERSION, PRODUCT
from fala.bundle.signature import SUFFIX, message_of, packed_manifest, signature_file
from fala.bundle.writing import add_version
from fala.updates import DEFAULT_PRODUCT, METADATA, TARGETS, release_path

__all__ = [
    "DEFAULT_PRODUCT",
    "MAX_VERSION",
    "METADATA",
    "PRODUCT",
    "SUFFIX",
    "TARGETS",
    "add_version",
    "message_of",
    "packed_manifest",
    "release_path",
    "signature_file",
]
