"""The mathematics of a personal model, as pure functions of arrays."""
