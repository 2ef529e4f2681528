"""A tiny graph with optional inputs: an adapter behind a mean of words.

It is no transformer; what a graph may be fed and what it may cost is all that its tests ask.
"""

import numpy as np

from bundles import WORDS, onnx_model

DOWN, UP = "adapter.0.output.down.weight", "adapter.0.output.up.weight"
WIDTH = 8


def optional_model(nodes=(), changed=None, renamed=None):
    """The graph in bytes; ``nodes`` may give a number ``extra`` that is added to the embedding.

    ``changed`` is an input with another declared ``shape``, ``kind`` or ``default``.
    """
    from onnx import TensorProto, helper, numpy_helper

    model = onnx_model(words=WORDS, dimension=WIDTH)
    graph = model.graph
    graph.output[0].name = "found"
    for node in graph.node:
        node.output[:] = ["found" if name == "embedding" else name for name in node.output]
    defaults = {
        DOWN: (np.zeros((WIDTH, 1), np.float32), [WIDTH, "m"]),
        UP: (np.zeros((1, WIDTH), np.float32), ["m", WIDTH]),
    }
    name, change = changed or ("", {})
    for one, (default, shape) in defaults.items():
        wanted = change if one == name else {}
        given = wanted.get("default", default)
        kind = wanted.get("kind", TensorProto.FLOAT)
        declared = helper.make_tensor_value_info(one, kind, wanted.get("shape", shape))
        graph.input.append(declared)
        graph.initializer.append(numpy_helper.from_array(given, one))
    parts = ["found", "up", *(["extra"] if nodes else [])]
    graph.node.extend([
        helper.make_node("MatMul", ["found", DOWN], ["down"]),
        helper.make_node("MatMul", ["down", UP], ["up"]),
        *nodes,
        helper.make_node("Sum", parts, ["embedding"]),
    ])  # fmt: skip
    graph.output[0].name = "embedding"
    for old, new in (renamed or {}).items():
        for node in graph.node:
            node.input[:] = [new if one == old else one for one in node.input]
        for entry in (*graph.input, *graph.initializer):
            entry.name = new if entry.name == old else entry.name
    return model.SerializeToString()


def stored(model, path):
    """The same in ONNX Runtime's own format."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return path.read_bytes()
