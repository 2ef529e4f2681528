"""The population prior for devices: how public annotators differ from the vendor's head.

Needs SciPy, which is not in the base install.
"""
