"""A way to train other than the whole model: adapters.

It has ``settings``, ``model``, ``training`` and ``release``.
"""
