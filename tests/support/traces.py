"""Traces of models of one form, shared by the tests of a run: one takes seconds.

The weights of a graph are the module's own: they change with the model, the nodes only with its
form. So a form is traced once, with weights of which no two are equal, which are then replaced.
"""

import copy
import functools
import hashlib
import math
import os
import pickle
import re
import sys

#: Names the folder of the run's traces to the processes that tests start.
FOLDER = "FALA_TEST_TRACES"
#: Families whose graphs hold their weights as they are.
SHARED = ("albert", "bert", "distilbert", "electra", "mpnet", "roberta")
LEAST = 2  # numbers of a constant that can only be of a weight
#: What no graph of these families depends on: parts of configurations, modules and weights.
_UNUSED = re.compile(
    r"dropout|vocab_size|name_or_path|architectures|^dtype$|use_cache|^transformer\.pooler"
)


def share(folder):
    """Let the exporter take the trace of a model of the same form, where it is loaded.

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

        if encoder.transformer.config.model_type not in SHARED:
            return trace(encoder)
        path = folder / _digest(encoder)
        if path.is_file():
            graph, places = pickle.loads(path.read_bytes())
            graph = load_from_string(graph)
        else:
            other = _with_numbers_of_its_own(encoder)
            graph = trace(other)
            places = _places(graph, other)
            if places is None:  # a constant is computed of weights
                return trace(encoder)
            folder.mkdir(exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(pickle.dumps((graph.SerializeToString(), places)))
            part.replace(path)
        _replace(graph, places, encoder)
        return graph

    module.encoder_graph = shared


def _digest(encoder):
    """SHA-256 over everything that a graph depends on, but weights, vocabulary and dropout."""
    table = encoder.transformer.get_input_embeddings()
    config = encoder.transformer.config.to_dict()

    def used(parts):
        return [part for part in parts if not _UNUSED.search(part[0])]

    form = [used(sorted(config.items())),
            [(name, type(part), part.extra_repr())
             for name, part in used(encoder.named_modules()) if part is not table],
            [(name, weight.dtype, None if weight is table.weight else weight.shape)
             for name, weight in used(encoder.named_parameters())],
            [(name, weight.shape) for name, weight in encoder.named_buffers()],
            encoder.end.pooling, encoder.end.normalize, encoder.end.cut,
            getattr(encoder.end.pooler, "layers", None), used(_aliases(encoder))]  # fmt: skip
    return hashlib.sha256(repr(form).encode()).hexdigest()


def _aliases(encoder):
    """Which names are of one weight."""
    first = {}
    names = encoder.named_parameters(remove_duplicate=False)
    return [(name, first.setdefault(id(weight), name)) for name, weight in names]


def _with_numbers_of_its_own(encoder):
    import torch

    other = copy.deepcopy(encoder)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in other.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return other


def _ways(encoder):
    """The forms that weights have in a graph, by their bytes: a weight's name and a way."""
    found = {}
    for name, weight in encoder.named_parameters():
        array = weight.detach().cpu().numpy()
        for way in WAYS:
            if array.ndim == 2 or way == "itself":
                found.setdefault(WAYS[way](array).tobytes(), (name, way))
    return found


WAYS = {
    "itself": lambda array: array,
    "turned": lambda array: array.T,
    "first row": lambda array: array[0],
}


def _places(graph, encoder):
    """The weight of each constant, and its way; None if one is of none."""
    from onnx import TensorProto, numpy_helper

    ways, places = _ways(encoder), {}
    for tensor in graph.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        array = numpy_helper.to_array(tensor)
        if (found := ways.get(array.tobytes())) is not None:
            places[tensor.name] = found
        elif array.size >= LEAST:
            return None
    return places


def _replace(graph, places, encoder):
    """Put a model's weights into a graph of its form."""
    from onnx import numpy_helper

    weights = dict(encoder.named_parameters())
    for tensor in graph.graph.initializer:
        if tensor.name in places:
            name, way = places[tensor.name]
            array = WAYS[way](weights[name].detach().cpu().numpy())
            if array.size == math.prod(tensor.dims):  # another vocabulary's table has another
                array = array.reshape(tuple(tensor.dims))
            tensor.CopyFrom(numpy_helper.from_array(array.copy(), tensor.name))
