"""Numbers for a graph's optional inputs, and prompts in torch, the reference for them."""

from contextlib import contextmanager

import numpy as np
import onnx
import pytest
import torch

ATTENTION = "torch.nn.functional.scaled_dot_product_attention"


def random_state(shapes, columns=5, tokens=4, seed=0, kind="", scale=0.3):
    """Arrays for optional inputs whose names begin with ``kind``; norms stay near 1."""
    draw = np.random.default_rng(seed)
    arrays = {}
    for name, shape in sorted(shapes.items()):
        free = columns if name.startswith("adapter.") else tokens
        lengths = [free if length is None else length for length in shape]
        numbers = draw.normal(size=lengths).astype(np.float32) * np.float32(scale)
        if name.startswith(kind):
            arrays[name] = numbers + np.float32(name.endswith("norm.weight"))
    return arrays


@contextmanager
def prefixed(inputs):
    """Put keys and values in front of a text's own in torch's attention, layer by layer."""
    plain = torch.nn.functional.scaled_dot_product_attention
    layers = iter(range(len(inputs) // 2))

    def attention(query, key, value, attn_mask=None, **settings):
        layer = next(layers)
        prefix = [
            torch.tensor(inputs[f"past_key_values.{layer}.{part}"]).expand(len(key), -1, -1, -1)
            for part in ("key", "value")
        ]
        key, value = torch.cat([prefix[0], key], dim=2), torch.cat([prefix[1], value], dim=2)
        if attn_mask is not None:
            attn_mask = attn_mask.expand(len(key), 1, query.shape[2], -1)
            visible = torch.full(
                (*attn_mask.shape[:3], prefix[0].shape[2]), attn_mask.dtype == torch.bool
            )
            attn_mask = torch.cat([visible.to(attn_mask.dtype), attn_mask], dim=3)
        return plain(query, key, value, attn_mask=attn_mask, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ATTENTION, attention)
        yield


@contextmanager
def noted():
    """Record the keys and values of torch's attention, layer by layer."""
    plain = torch.nn.functional.scaled_dot_product_attention
    arrays = {}

    def attention(query, key, value, **settings):
        layer = len(arrays) // 2
        arrays[f"past_key_values.{layer}.key"] = key.numpy().copy()
        arrays[f"past_key_values.{layer}.value"] = value.numpy().copy()
        return plain(query, key, value, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ATTENTION, attention)
        yield arrays


def constant(model, inputs):
    """A graph with constants instead of optional inputs, like a task's separate export."""
    graph = onnx.ModelProto()
    graph.CopyFrom(model)
    for tensor in graph.graph.initializer:
        if tensor.name in inputs:
            tensor.CopyFrom(onnx.numpy_helper.from_array(inputs[tensor.name], tensor.name))
    names = {tensor.name for tensor in graph.graph.initializer}
    needed = [entry for entry in graph.graph.input if entry.name not in names]
    del graph.graph.input[:]
    graph.graph.input.extend(needed)
    del graph.graph.output[1:]  # keys and values
    return graph
