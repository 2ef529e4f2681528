"""Classes of real devices, and what a replacement does within their limits.

Nothing is imported here: the limited process must set its limits before it loads any library.
"""
