"""What plain ``pytest`` needs before any test, or NumPy, is imported."""

import os

# Tests that start processes of their own share the cores with them: BLAS threads that spin for
# each other's cores make a run many times slower, and none of the tests' matrices is large.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# By name, too: a checkout is tested as it lies there, installed or not.
pytest_plugins = ["pytest_fala"]
