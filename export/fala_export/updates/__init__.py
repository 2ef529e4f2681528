"""Sign and publish updates: keys, a static repository, and signatures of single files."""

from fala.base.errors import install_hint
from fala_export.base.errors import ExportError

try:
    import cryptography
    import filelock
    import tuf
except ImportError as error:
    raise ExportError(f"to sign and publish: {install_hint('ota')} ({error})") from error

del cryptography, filelock, tuf
