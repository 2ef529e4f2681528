"""Run a graph, exported by another tool or made from static embeddings, and what follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, compose
from onnxruntime import InferenceSession
from torch import Tensor, nn

from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line
from fala_export.graph.runtime import model_bytes
from fala_export.models.onnx_graph import INPUTS, trace, with_embedding
from fala_export.models.sentence_encoder import Ending

_IDS, _MASK = INPUTS
_TOKENS = "mask"  # The mask is passed on from the inputs to the end.
_TYPES, _POSITIONS = "token_type_ids", "position_ids"
GRAPH_INPUTS = {_IDS, _MASK, _TYPES, _POSITIONS}
INPUT_KINDS = {
    TensorProto.INT64: torch.int64, TensorProto.INT32: torch.int32,
    TensorProto.FLOAT: torch.float32, TensorProto.BOOL: torch.bool,
}  # fmt: skip
_RUN_KINDS = {
    "tensor(int64)": torch.int64, "tensor(int32)": torch.int32, "tensor(float)": torch.float32,
    "tensor(bool)": torch.bool,
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
        ids, mask = (torch.ones((2, 8), dtype=torch.long) for _ in range(2))
        names = [value.name for value in self.proto.graph.input]
        kinds = [INPUT_KINDS[value.type.tensor_type.elem_type] for value in self.proto.graph.input]
        feed = _Feed(names, kinds, self.first_position)
        given = [f"{name}.given" for name in names]
        whole = trace(feed, dict(zip(INPUTS, (ids, mask), strict=True)), [*given, _TOKENS], opset)
        middle = _without_unused(self.proto, self.output)
        whole = _joined(whole, middle, dict(zip(given, names, strict=True)), "file.")
        states = torch.ones((2, 8, self.end.width) if self.end.pooler else (2, self.end.width))
        inputs = {"states": states} | ({"mask": mask} if self.end.pooler else {})
        end = trace(self.end, inputs, ["embedding"], opset)
        from_file = {f"file.{self.output}": "states"}
        tokens = {_TOKENS: "mask"} if self.end.pooler else {}
        whole = _joined(whole, end, from_file | tokens, "end.")
        return with_embedding(whole, "end.embedding", self.end.dimension)


class _Feed(nn.Module):
    """A module that makes a graph's inputs from token ids and their mask, and passes on the mask.

    Args:
        names: Names of the graph's inputs.
        kinds: Types of the graph's inputs.
        first_position: The position of a text's first token.
    """

    def __init__(
        self, names: Sequence[str], kinds: Sequence[torch.dtype], first_position: int
    ) -> None:
        super().__init__()
        self.inputs, self.first_position = [*zip(names, kinds, strict=True)], first_position

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs in their order, then the mask."""
        zeros = ids - ids
        values = {
            _IDS: ids,
            _MASK: mask,
            _TYPES: zeros,  # All of a single text is of the first type.
            _POSITIONS: (zeros + 1).cumsum(1) + (self.first_position - 1),
        }
        # The graph's inputs cannot be returned directly, because no node would return them.
        return (*((values[name] + zeros).to(kind) for name, kind in self.inputs), mask + zeros)


def _feeds(
    runner: InferenceSession, ids: NDArray[np.int64], first_position: int
) -> dict[str, NDArray[Any]]:
    inputs = runner.get_inputs()
    names, kinds = [value.name for value in inputs], [_RUN_KINDS[value.type] for value in inputs]
    rows = torch.from_numpy(ids)
    *values, _ = _Feed(names, kinds, first_position)(rows, torch.ones_like(rows))
    return {name: value.numpy() for name, value in zip(names, values, strict=True)}


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


def _without_unused(model: ModelProto, output: str) -> ModelProto:
    """Return a graph with one of its outputs, without nodes that the output does not depend on."""
    copy = ModelProto()
    copy.CopyFrom(model)
    needed, kept = {output}, []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            kept.append(node)
            needed.update(name for part in _with_inner(node) for name in part.input)
    del copy.graph.node[:], copy.graph.output[:]
    copy.graph.node.extend(reversed(kept))
    copy.graph.output.extend(value for value in model.graph.output if value.name == output)
    return copy


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
    joined: ModelProto = onnx.helper.make_model(
        graph,
        ir_version=max(first.ir_version, second.ir_version),
        opset_imports=[*operators.values()],
    )
    return joined


def _with_inner(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield a node and the nodes of its inner graphs."""
    yield node
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for inner in graph.node:
                yield from _with_inner(inner)
