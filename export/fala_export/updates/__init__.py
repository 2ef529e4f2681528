"""Signed updates, the vendor's side: keys, a static repository, and signatures of single files."""

from fala_export.errors import ExportError

try:
    import cryptography
    import filelock
    import tuf
except ImportError as error:
    raise ExportError(f"pip install 'fala-sdk[ota]' to sign and publish ({error})") from error

del cryptography, filelock, tuf
