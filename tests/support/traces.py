"""Traces of modules of one form, shared by the tests of a run: one takes seconds.

The weights of a graph are the module's own: they change with the model, the nodes only with its
form. So a form is traced once, with weights of which no two are equal, which are then replaced.
"""

import copy
import functools
import hashlib
import importlib
import math
import os
import pickle
import re
import sys

#: Names the folder of the run's traces to the processes that tests start.
FOLDER = "FALA_TEST_TRACES"
#: Families whose graphs hold their weights as they are.
SHARED = ("albert", "bert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta")
LEAST = 2  # numbers of a constant that can only be of a weight
#: What no graph of these families depends on: parts of configurations, modules and weights.
_UNUSED = re.compile(
    r"dropout|vocab_size|name_or_path|architectures|^dtype$|use_cache|^transformer\.pooler"
)
_PLAIN = (bool, int, float, str, tuple, list, type(None))
_MODULES = ("fala_export.models.onnx_graph", "fala_export.models.exported_graph")


def share(folder):
    """Let the exporter take the trace of a module of the same form, where it is loaded.

    Args:
        folder: Folder of the run's traces.
    """
    for module in filter(None, map(sys.modules.get, _MODULES)):
        if not hasattr(module.trace, "__wrapped__"):
            module.trace = _shared(module.trace, folder)


def _shared(trace, folder):
    @functools.wraps(trace)
    def shared(module, inputs, outputs, *opset):
        from onnx import load_from_string

        transformer = getattr(module, "transformer", None)
        path = folder / _digest(module, transformer, inputs, outputs, opset)
        if path.is_file():
            graph, places = pickle.loads(path.read_bytes())
            graph = load_from_string(graph)
        else:
            _share_translations()
            if transformer is not None and transformer.config.model_type not in SHARED:
                return trace(module, inputs, outputs, *opset)
            other = _with_numbers_of_its_own(module)
            graph = trace(other, inputs, outputs, *opset)
            places = _places(graph, other)
            if places is None:  # a constant is computed of weights
                return trace(module, inputs, outputs, *opset)
            folder.mkdir(exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(pickle.dumps((graph.SerializeToString(), places)))
            part.replace(path)
        _replace(graph, places, module)
        return graph

    return shared


def _share_translations():
    """Build torch's table of operators once for all traces of a process: it takes a second."""
    tracer = importlib.import_module("torch.onnx._internal.exporter._registration")
    build = tracer.ONNXRegistry.from_torchlib
    if hasattr(build, "__func__"):
        tracer.ONNXRegistry.from_torchlib = staticmethod(functools.cache(build))


def _digest(module, transformer, inputs, outputs, opset):
    """SHA-256 over everything that a graph depends on, but weights, vocabulary and dropout."""
    table = config = None
    if transformer is not None:
        table, config = transformer.get_input_embeddings(), transformer.config.to_dict()

    def used(parts):
        return [part for part in parts if not _UNUSED.search(part[0])]

    form = [used(sorted((config or {}).items())),
            [(name, type(part), part.extra_repr())
             for name, part in used(module.named_modules()) if part is not table],
            [(name, weight.dtype, None if table and weight is table.weight else weight.shape)
             for name, weight in used(module.named_parameters())],
            [(name, weight.shape) for name, weight in module.named_buffers()],
            [(name, _settings(part))
             for name, part in getattr(module, "end", module).named_modules()],
            used(_aliases(module)),
            [(name, value.dtype, value.shape) for name, value in inputs.items()],
            list(outputs), opset]  # fmt: skip
    return hashlib.sha256(repr(form).encode()).hexdigest()


def _settings(module):
    """What a module computes by, beside weights and inner modules."""
    return [(name, value) for name, value in sorted(vars(module).items())
            if name[0] != "_" and isinstance(value, _PLAIN)]  # fmt: skip


def _aliases(module):
    """Which names are of one weight."""
    first = {}
    names = module.named_parameters(remove_duplicate=False)
    return [(name, first.setdefault(id(weight), name)) for name, weight in names]


def _with_numbers_of_its_own(module):
    import torch

    other = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in other.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return other


def _ways(module):
    """The forms that weights have in a graph, by their bytes: a weight's name and a way."""
    found = {}
    for name, weight in module.named_parameters():
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


def _places(graph, module):
    """The weight of each constant, and its way; None if one is of none."""
    from onnx import TensorProto, numpy_helper

    ways, places = _ways(module), {}
    for tensor in graph.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        array = numpy_helper.to_array(tensor)
        if (found := ways.get(array.tobytes())) is not None:
            places[tensor.name] = found
        elif array.size >= LEAST:
            return None
    return places


def _replace(graph, places, module):
    """Put a model's weights into a graph of its form."""
    from onnx import numpy_helper

    weights = dict(module.named_parameters())
    for tensor in graph.graph.initializer:
        if tensor.name in places:
            name, way = places[tensor.name]
            array = WAYS[way](weights[name].detach().cpu().numpy())
            if array.size == math.prod(tensor.dims):  # another vocabulary's table has another
                array = array.reshape(tuple(tensor.dims))
            tensor.CopyFrom(numpy_helper.from_array(array.copy(), tensor.name))
