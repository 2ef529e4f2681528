"""The steps of sentence-transformers after a transformer, as nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto
from sentence_transformers.sentence_transformer import modules
from torch import nn

from fala_export.errors import ExportError
from fala_export.graph.edit import GraphEdit
from fala_export.models.folder import (
    ATTENTION_TYPE,
    MODULES,
    TYPES,
    Modules,
    loading,
    read_any_json,
    read_pooling,
    read_step,
)

TRANSFORMERS = ("Transformer", "StaticEmbedding")
"""The steps that a graph itself takes."""

TINY = 1e-9
"""Keeps the mean of a row without tokens finite."""

_WEIGHTED = ("Dense", "LayerNorm")
_SHORTEST = 1e-12  # length of an embedding that is scaled to 1: torch's own
_LOWEST = np.finfo(np.float32).min
_ACTIVATIONS = {"Identity": "Identity", "Tanh": "Tanh", "ReLU": "Relu", "Sigmoid": "Sigmoid"}


class Cut(nn.Module):
    """Keeps the first numbers of an embedding.

    Kusupati et al., "Matryoshka Representation Learning", NeurIPS 2022.

    Args:
        kept: Number of them.
    """

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Cut ``sentence_embedding`` (n, dim)."""
        return {**features, "sentence_embedding": features["sentence_embedding"][:, : self.kept]}


def read_steps(folder: Path, pooling: str | None, width: int | None) -> list[nn.Module] | None:
    """Read the steps after a transformer from its folder.

    Args:
        folder: The model's.
        pooling: A mode in place of the pooling in the files.
        width: Length of a token's state; None where the graph pools.

    Returns:
        Modules of sentence-transformers, in their order; without dropout. None where the folder
        lists no steps.

    Raises:
        ExportError: A step cannot be read, is not one of these, or is code of the model's own.
    """
    listed = read_any_json(folder / MODULES)
    if listed is None:
        return None
    with loading(MODULES):
        named = [(str(step["type"]), str(step["path"])) for step in listed]
    steps: list[nn.Module] = []
    for position, (kind, path) in enumerate(named):
        name = kind.rpartition(".")[2]
        pools = name == "Pooling" or kind == ATTENTION_TYPE
        if (position == 0 and name in TRANSFORMERS) or (pools and width is None):
            continue  # the graph itself takes it
        if kind == ATTENTION_TYPE and pooling is None:
            raise ExportError(
                "the files beside it pool by attention, which no graph of another tool has: "
                "export the folder, or choose with --pooling"
            )
        if not kind.startswith(TYPES) and kind != ATTENTION_TYPE:
            raise ExportError(
                f"{MODULES} names {kind}, code of the model's own, which is never run"
            )
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ExportError(f"{MODULES} names the folder {path}, outside the model's")
        if name != "Dropout":
            steps.append(_read_step("Pooling" if pools else name, folder, path, pooling, width))
    if width is not None and not any(isinstance(step, modules.Pooling) for step in steps):
        if pooling is None:
            raise ExportError(f"{MODULES} names no pooling: choose with --pooling")
        steps.insert(0, modules.Pooling(width, pooling))
    return steps


def _read_step(
    name: str, folder: Path, path: str, pooling: str | None, width: int | None
) -> nn.Module:
    if name == "Pooling" and width is not None:
        if pooling is not None:
            return modules.Pooling(width, pooling)
        found = read_pooling(folder, Modules(pooling=path, listed=True), width)
        if isinstance(found, modules.Pooling):
            return found
    if name == "Normalize":
        return modules.Normalize()
    if name not in _WEIGHTED:
        raise ExportError(f"{MODULES} names {name}, which cannot be exported")
    step: nn.Module = read_step(folder, name, path)
    activation = type(getattr(step, "activation_function", nn.Identity())).__name__
    if activation not in _ACTIVATIONS:
        raise ExportError(
            f"{path} has the activation {activation}, and a graph can have one of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    return step


def add_steps(edit: GraphEdit, steps: Sequence[nn.Module], value: str, mask: str) -> str:
    """Add steps to a graph.

    Args:
        edit: The graph.
        steps: From ``read_steps``.
        value: The states of texts' tokens, or embeddings, that the first step takes.
        mask: The attention mask, in int64.

    Returns:
        The name of the embeddings.
    """
    for step in steps:
        if isinstance(step, modules.Pooling):
            parts = [_POOLINGS[mode](edit, value, mask) for mode in modes(step)]
            value = parts[0] if len(parts) == 1 else edit.add("Concat", parts, axis=1)
        elif isinstance(step, modules.Dense):
            value = _dense(edit, step, value)
        elif isinstance(step, modules.LayerNorm):
            norm = step.norm
            weights = [edit.constant(_array(part)) for part in (norm.weight, norm.bias)]
            value = edit.add("LayerNormalization", [value, *weights], epsilon=norm.eps)
        elif isinstance(step, Cut):
            bounds = [edit.constant(np.array([number])) for number in (0, step.kept, 1)]
            value = edit.add("Slice", [value, *bounds])
        else:
            length = edit.add("ReduceL2", [value, edit.constant(np.array([1]))], keepdims=1)
            length = edit.add("Max", [length, edit.constant(np.float32(_SHORTEST))])
            value = edit.add("Div", [value, length])
    return value


def run_steps(
    steps: Sequence[nn.Module], values: NDArray[np.float32], mask: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Run steps by sentence-transformers itself: the reference of ``add_steps``.

    Args:
        steps: From ``read_steps``.
        values: States of texts' tokens, shape (n, length, width), or embeddings, (n, width).
        mask: Shape (n, length).

    Returns:
        Shape (n, dim).
    """
    name = "token_embeddings" if values.ndim == 3 else "sentence_embedding"
    features: dict[str, Any] = {
        name: torch.from_numpy(values), "attention_mask": torch.from_numpy(mask)
    }  # fmt: skip
    with torch.inference_mode():
        for step in steps:
            features = step(features)
    embeddings: NDArray[np.float32] = features["sentence_embedding"].numpy()
    return embeddings


def modes(step: modules.Pooling) -> tuple[str, ...]:
    """The modes of a pooling, whose results are concatenated."""
    mode = step.pooling_mode
    return (mode,) if isinstance(mode, str) else tuple(mode)


def widths(steps: Sequence[nn.Module]) -> tuple[int, int] | None:
    """The widths before and after the steps with weights; None without such steps."""
    found = [
        (step.in_features, step.out_features) if isinstance(step, modules.Dense)
        else (step.dimension, step.dimension)
        for step in steps if isinstance(step, modules.Dense | modules.LayerNorm)
    ]  # fmt: skip
    return (found[0][0], found[-1][1]) if found else None


def _array(weight: torch.Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = weight.detach().float().numpy()
    return array


def _dense(edit: GraphEdit, step: modules.Dense, value: str) -> str:
    def product(layer: nn.Linear) -> str:
        name = edit.add("MatMul", [value, edit.constant(_array(layer.weight).T)])
        if layer.bias is None:
            return name
        return edit.add("Add", [name, edit.constant(_array(layer.bias))])

    activation = _ACTIVATIONS[type(step.activation_function).__name__]
    result = edit.add(activation, [product(step.linear)])
    if not getattr(step, "use_residual", False):
        return result
    residual = value if step.in_features == step.out_features else product(step.residual)
    return edit.add("Add", [result, residual])


def _weighted(edit: GraphEdit, states: str, weights: str) -> tuple[str, str]:
    """The weighted sum of a text's states, and the sum of the weights; from float weights."""
    axis = edit.constant(np.array([1]))
    wide = edit.add("Unsqueeze", [weights, edit.constant(np.array([2]))])
    total = edit.add("ReduceSum", [edit.add("Mul", [states, wide]), axis], keepdims=0)
    count = edit.add("ReduceSum", [weights, axis], keepdims=1)
    return total, edit.add("Max", [count, edit.constant(np.float32(TINY))])


def _float(edit: GraphEdit, mask: str) -> str:
    return edit.add("Cast", [mask], to=TensorProto.FLOAT)


def _positions(edit: GraphEdit, mask: str) -> str:
    """The number of tokens up to each one."""
    return edit.add("CumSum", [mask, edit.constant(np.int64(1))])


def _mean(edit: GraphEdit, states: str, mask: str) -> str:
    return edit.add("Div", list(_weighted(edit, states, _float(edit, mask))))


def _mean_sqrt(edit: GraphEdit, states: str, mask: str) -> str:
    total, count = _weighted(edit, states, _float(edit, mask))
    return edit.add("Div", [total, edit.add("Sqrt", [count])])


def _weighted_mean(edit: GraphEdit, states: str, mask: str) -> str:
    weights = edit.add("Mul", [_positions(edit, mask), mask])
    return edit.add("Div", list(_weighted(edit, states, _float(edit, weights))))


def _first(edit: GraphEdit, states: str, mask: str) -> str:
    return edit.add("Gather", [states, edit.constant(np.int64(0))], axis=1)


def _last(edit: GraphEdit, states: str, mask: str) -> str:
    axis = edit.constant(np.array([1]))
    count = edit.add("ReduceSum", [mask, axis], keepdims=1)
    ends = edit.add("Cast", [edit.add("Equal", [_positions(edit, mask), count])], to=7)
    # Padding on the right has the last token's number.
    return _weighted(edit, states, _float(edit, edit.add("Mul", [ends, mask])))[0]


def _largest(edit: GraphEdit, states: str, mask: str) -> str:
    real = edit.add("Cast", [mask], to=TensorProto.BOOL)
    real = edit.add("Unsqueeze", [real, edit.constant(np.array([2]))])
    kept = edit.add("Where", [real, states, edit.constant(np.float32(_LOWEST))])
    return edit.add("ReduceMax", [kept, edit.constant(np.array([1]))], keepdims=0)


_POOLINGS: dict[str, Callable[[GraphEdit, str, str], str]] = {
    "cls": _first, "max": _largest, "mean": _mean, "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean, "lasttoken": _last,
}  # fmt: skip
