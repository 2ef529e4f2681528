"""The data that a device keeps on its disk."""
