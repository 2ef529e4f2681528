"""Traces of equal models, shared by the tests of a run: one takes seconds, and many are equal."""

import functools
import hashlib
import os
import sys


def share(folder):
    """Let the exporter take the trace of an equal model, where it is loaded.

    Args:
        folder: Folder of the run's traces.
    """
    module = sys.modules.get("fala_export.models.encoder")
    if module is None or hasattr(module.encoder_graph, "__wrapped__"):
        return
    trace = module.encoder_graph

    @functools.wraps(trace)
    def shared(encoder):
        from onnx import load_from_string

        path = folder / _digest(encoder)
        if path.is_file():
            return load_from_string(path.read_bytes())
        graph = trace(encoder)
        folder.mkdir(exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(graph.SerializeToString())
        part.replace(path)
        return graph

    module.encoder_graph = shared


def _digest(encoder):
    """SHA-256 over everything that a graph depends on."""
    form = [str(encoder), encoder.transformer.config.to_json_string(), encoder.pooling,
            encoder.normalize, encoder.cut, getattr(encoder.pooler, "layers", None)]  # fmt: skip
    digest = hashlib.sha256(repr(form).encode())
    for name, weight in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
