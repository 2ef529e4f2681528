"""The two slots of a device: which release is active, its validation, trial, rollback, repair."""
