"""Files for their user alone."""

from __future__ import annotations

import logging
from pathlib import Path

_log = logging.getLogger("fala.store")


def keep_private(path: Path) -> None:
    """Keep a file or folder from the machine's other users, whatever the umask.

    Raises:
        OSError: It is gone.
    """
    try:
        path.chmod(0o700 if path.is_dir() else 0o600)
    except PermissionError:  # a card's file system that keeps no modes, or somebody else's folder
        _log.warning("%s: cannot be kept from other users", path)
