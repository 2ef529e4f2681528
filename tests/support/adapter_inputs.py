"""Numbers for the inputs of adapters."""

import numpy as np
import onnx


def random_inputs(shapes, columns=5, seed=0, scale=0.3):
    """Arrays for the inputs; norms stay near 1."""
    draw = np.random.default_rng(seed)
    arrays = {}
    for name, shape in sorted(shapes.items()):
        lengths = [columns if length is None else length for length in shape]
        numbers = draw.normal(size=lengths).astype(np.float32) * np.float32(scale)
        arrays[name] = numbers + np.float32(name.endswith("norm.weight"))
    return arrays


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
    return graph
