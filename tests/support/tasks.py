"""Adapters of random weights, and their bundles."""

import numpy as np

from bundles import DIMENSION, make_head
from fala import Bundle
from fala_export.bundle.adapter import write_adapter

#: What of ``adapter_config.json`` decides how an adapter is run.
FORM = {
    "mh_adapter": True,
    "output_adapter": True,
    "non_linearity": "swish",
    "is_parallel": False,
    "scaling": 1.0,
    "use_gating": False,
    "ln_before": False,
    "ln_after": False,
    "original_ln_before": False,
    "original_ln_after": True,
    "residual_before_ln": True,
    "adapter_residual_before_ln": False,
    "phm_layer": False,
}


def make_inputs(layers=2, size=3, dimension=DIMENSION, seed=4, scale=0.1):
    """What an adapter of random weights feeds."""
    rng = np.random.default_rng(seed)
    shapes = {
        "down.weight": (dimension, size),
        "down.bias": (size,),
        "up.weight": (size, dimension),
        "up.bias": (dimension,),
        "norm.weight": (dimension,),
        "norm.bias": (dimension,),
    }
    return {
        f"adapter.{layer}.{place}.{part}": (
            scale * rng.normal(size=shape) + (part == "norm.weight")
        ).astype(np.float32)
        for layer in range(layers)
        for place in ("attention", "output")
        for part, shape in shapes.items()
    }


def write_task(path, base, name="paraphrase", head=None, details=None, **options):
    """Write an adapter of random weights for a bundle's backbone, and open it."""
    dimension = base.manifest.dimension
    inputs = make_inputs(dimension=dimension, **options)
    head = make_head(dimension=dimension) if head is None else head
    write_adapter(path, base, name, inputs, head, {"config": FORM, "name": name}, details or {})
    return Bundle.open(path)
