"""Three ways to train other than the whole model: adapters, prompts, distillation.

Each has ``settings``, ``model``, ``training`` and ``release``.
"""
