"""Two ways to train other than the whole model: adapters and distillation.

Each has ``settings``, ``model``, ``training`` and ``release``.
"""
