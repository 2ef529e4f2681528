"""Shared by the benchmarks, which also use the support of the tests."""

import sys
from pathlib import Path

# First, because a benchmark and a module of the tests' support may have the same name.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
