"""Run a graph, exported by another tool or made from static embeddings, and what follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, compose, helper
from onnxruntime import InferenceSession

from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line
from fala_export.graph.runtime import model_bytes
from fala_export.models.onnx_graph import INPUTS, trace, with_embedding
from fala_export.models.sentence_encoder import Ending

_IDS, _MASK = INPUTS
_TOKENS = "mask"  # The mask is passed on from the inputs to the end.
_TYPES, _POSITIONS = "token_type_ids", "position_ids"
GRAPH_INPUTS = {_IDS, _MASK, _TYPES, _POSITIONS}
INPUT_KINDS = {TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT, TensorProto.BOOL}
_RUN_KINDS = {
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32,
    "tensor(bool)": np.bool_,
}  # fmt: skip


@dataclass(frozen=True)
class ExportedGraph:
    """A file's graph, up to the tokens' states or an embedding, and what follows.

    Attributes:
        proto: The graph in this package's form.
        runner: A session that runs the file as it was given.
        output: The output that is used.
        end: What follows the output.
        first_position: The position of a text's first token.
    """

    proto: ModelProto
    runner: InferenceSession
    output: str
    end: Ending
    first_position: int = 0

    @property
    def size(self) -> int:
        """Size of the graph, in bytes."""
        return model_bytes(self.proto)

    def embed(
        self, ids: Sequence[Sequence[int]], step: Callable[[int], None]
    ) -> NDArray[np.float32]:
        """Embed tokenized texts one by one with the original file, shape (n, dim)."""
        embeddings = []
        for row in ids:
            (values,) = self.runner.run(
                [self.output], _feeds(self.runner, np.array([row]), self.first_position)
            )
            with torch.inference_mode():
                states, mask = torch.from_numpy(values).float(), torch.ones((1, len(row)))
                embeddings.append(self.end(states, mask.long()).numpy()[0])
            step(1)
        return np.array(embeddings, dtype=np.float32)

    def whole(self) -> ModelProto:
        """Return the graph from token ids and mask to ``embedding``; see ``encoder_graph``."""
        opset = next(entry.version for entry in self.proto.opset_import if not entry.domain)
        whole = _inputs(self.proto, self.first_position)
        given = {f"{value.name}.given": value.name for value in self.proto.graph.input}
        whole = _joined(whole, self.proto, given, "file.")
        embedding = f"file.{self.output}"
        if not self.end.empty:
            states = torch.ones((2, 8, self.end.width) if self.end.pooler else (2, self.end.width))
            inputs, wires = {"states": states}, {embedding: "states"}
            if self.end.pooler:
                inputs["mask"] = torch.ones((2, 8), dtype=torch.long)
                wires[_TOKENS] = "mask"
            end = trace(self.end, inputs, ["embedding"], opset)
            whole, embedding = _joined(whole, end, wires, "end."), "end.embedding"
        return with_embedding(whole, embedding, self.end.dimension)


def _inputs(file: ModelProto, first_position: int) -> ModelProto:
    """Return the graph from token ids and mask to a file's inputs, and to the mask.

    Args:
        file: The file's graph, whose inputs get names that end in ``.given``.
        first_position: The position of a text's first token.
    """
    shape = ["batch_size", "sequence_length"]
    kinds = {value.name: value.type.tensor_type.elem_type for value in file.graph.input}
    made = {_IDS: _IDS, _MASK: _MASK, _TYPES: "zeros", _POSITIONS: "positions"}
    nodes, numbers = [helper.make_node("Identity", [_MASK], [_TOKENS])], []
    if not kinds.keys().isdisjoint((_TYPES, _POSITIONS)):
        # All of a single text is of the first type.
        nodes.append(helper.make_node("Sub", [_IDS, _IDS], ["zeros"]))
    if _POSITIONS in kinds:
        numbers = [("one", 1), ("before", first_position - 1)]
        nodes += [
            helper.make_node("Add", ["zeros", "one"], ["ones"]),
            helper.make_node("CumSum", ["ones", "one"], ["counted"]),  # along the tokens
            helper.make_node("Add", ["counted", "before"], ["positions"]),
        ]
    outputs = [helper.make_tensor_value_info(_TOKENS, TensorProto.INT64, shape)]
    for name, kind in kinds.items():
        nodes.append(helper.make_node("Cast", [made[name]], [f"{name}.given"], to=kind))
        outputs.append(helper.make_tensor_value_info(f"{name}.given", kind, shape))
    graph = helper.make_graph(
        nodes,
        "inputs",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in INPUTS],
        outputs,
        [helper.make_tensor(name, TensorProto.INT64, [], [number]) for name, number in numbers],
    )
    model: ModelProto = helper.make_model(
        graph, ir_version=file.ir_version, opset_imports=file.opset_import
    )
    return model


def _feeds(
    runner: InferenceSession, ids: NDArray[np.int64], first_position: int
) -> dict[str, NDArray[Any]]:
    positions = np.arange(first_position, first_position + ids.shape[1])
    made = {
        _IDS: ids,
        _MASK: np.ones_like(ids),
        _TYPES: np.zeros_like(ids),
        _POSITIONS: np.broadcast_to(positions, ids.shape),
    }
    return {
        value.name: made[value.name].astype(_RUN_KINDS[value.type]) for value in runner.get_inputs()
    }


def run_graph(
    runner: InferenceSession, ids: NDArray[np.int64], first_position: int
) -> dict[str, NDArray[Any]]:
    """Return a file's outputs for some tokens, by name."""
    names = [value.name for value in runner.get_outputs()]
    try:
        values = runner.run(None, _feeds(runner, ids, first_position))
    except Exception as error:  # onnxruntime has no base class for its errors.
        raise ExportError(
            f"cannot read {ids.shape[1]} tokens of its tokenizer; set a smaller --max-length: "
            f"{first_line(error)}"
        ) from error
    return dict(zip(names, values, strict=True))


def _joined(
    first: ModelProto, second: ModelProto, wires: Mapping[str, str], prefix: str
) -> ModelProto:
    """Join two graphs to one.

    Args:
        first: The first graph, whose names stay.
        second: The second graph, whose names get the prefix.
        wires: The first graph's output for each connected input of the second.
        prefix: The prefix for the names of the second graph.
    """
    wired = [(given, f"{prefix}{taken}") for given, taken in wires.items()]
    second = compose.add_prefix(second, prefix)
    graph = compose.merge_graphs(first.graph, second.graph, wired)
    operators = {entry.domain: entry for entry in [*first.opset_import, *second.opset_import]}
    joined: ModelProto = helper.make_model(
        graph,
        ir_version=max(first.ir_version, second.ir_version),
        opset_imports=[*operators.values()],
    )
    return joined
