"""What the laboratory's options may be given by name, for help and completion.

Nothing is imported before it is asked for: a command that fails early should fail at once.
"""

from __future__ import annotations

from fala.playground.releases import BUILT_IN


def methods() -> dict[str, str]:
    """Methods, with the first line of what their classes say."""
    from fala_sim.methods.registry import METHODS

    return {
        name: (method.__doc__ or method.title).splitlines()[0] for name, method in METHODS.items()
    }


def old_backbones() -> dict[str, str]:
    """Backbones that simulated devices may have."""
    from fala_sim.models.commands import pretrained

    return {**pretrained(), **BUILT_IN}


def new_backbones() -> dict[str, str]:
    """Backbones that may come to them."""
    return {**old_backbones(), "tuned:minilm": "minilm, trained on each data set's public first"}
