"""Where things lie: this checkout, and the folder of real data where there is one."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent


def real_data(*parts):
    """A file or folder of the real data sets; skips the test, or the module, without it."""
    named = os.environ.get("FALA_DATA")
    path = Path(named or os.devnull, *parts)
    if not named or not path.exists():
        reason = f"real data: FALA_DATA names no folder with {'/'.join(parts)}"
        pytest.skip(reason, allow_module_level=True)
    return path
