"""Classes of real devices, and replacements within their limits.

This module imports nothing, because the limited process sets its limits before it loads any
library.
"""
