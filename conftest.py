"""What plain ``pytest`` needs before any test, or NumPy, is imported."""

import gc
import os
import sys

# The libraries that tests import leave millions of objects that stay to the end. Looking for cycles
# among them takes half of the imports' time, and then a sixth of the tests'.
gc.disable()

# Tests that start processes of their own share the cores with them: BLAS threads that spin for
# each other's cores make a run many times slower, and none of the tests' matrices is large.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start hundreds of processes, and each would compile every module it imports once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# By name, too: a checkout is tested as it lies there, installed or not.
pytest_plugins = ["pytest_fala"]


def pytest_collection_finish() -> None:
    """Look for cycles again, but only among what tests make."""
    gc.freeze()
    gc.enable()
