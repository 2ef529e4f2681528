"""Three ways to train beside the whole model: adapters, prompts, distillation.

Each has ``settings``, ``model``, ``training`` and ``release``.
"""
