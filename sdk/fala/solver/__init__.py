"""The mathematics of a personal model: pure functions of arrays."""
