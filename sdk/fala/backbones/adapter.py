"""A task's adapter, as inputs of a backbone beside the texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit.graph import OPTIONAL
from fala.base.errors import BundleFormatError

#: The most columns of an adapter's matrices.
MAX_BOTTLENECK = 256

#: The parts of an adapter, and for each of their axes whether the adapter decides its length.
_FREE = {
    "down.weight": (False, True), "down.bias": (True,), "up.weight": (True, False),
    "up.bias": (False,), "norm.weight": (False,), "norm.bias": (False,),
}  # fmt: skip
_BIASES = (".down.bias", ".up.bias")  # of an adapter; the second has no bottleneck's length

_Inputs = Mapping[str, NDArray[np.float32]]

Shape = tuple["int | None", ...]
"""Lengths of an input's axes; None for a length that depends on the adapter."""


class AdapterWeights:
    """An adapter's arrays, for the optional inputs of a graph; see ``OnnxEncoder.encode``.

    Some are kept in int8. This saves memory, because a device may have many tasks but runs one at a
    time. Without an input the backbone runs as without that part of the adapter.

    Args:
        floats: Arrays in float32, by the inputs' names.
        codes: Further arrays: int8 codes, shape (n, m), and the step of each column, shape (m,).
    """

    def __init__(
        self,
        floats: _Inputs,
        codes: Mapping[str, tuple[NDArray[np.int8], NDArray[np.float32]]] | None = None,
    ) -> None:
        self._floats, self._codes = floats, codes or {}

    @property
    def inputs(self) -> dict[str, NDArray[np.float32]]:
        """The arrays in float32, decoded at each access."""
        decoded = {
            name: code.astype(np.float32) * step for name, (code, step) in self._codes.items()
        }
        return {**self._floats, **decoded}


def optional_shapes(entries: Sequence[Any]) -> dict[str, Shape]:
    """Return the inputs for an adapter, among the optional inputs of a graph.

    Args:
        entries: onnxruntime's inputs with a name and a shape, whose fixed lengths are those of the
            default.

    Raises:
        BundleFormatError: The free lengths of an input are not those of an adapter's.
    """
    shapes: dict[str, Shape] = {}
    for entry in entries:
        if (match := OPTIONAL.fullmatch(entry.name)) is None:
            continue  # another constant
        shape = tuple(length if isinstance(length, int) else None for length in entry.shape)
        if tuple(length is None for length in shape) != _FREE[match[2]]:
            raise BundleFormatError(f"the optional input {entry.name} has another shape")
        shapes[entry.name] = shape
    return shapes


def check_inputs(inputs: _Inputs, shapes: Mapping[str, Shape]) -> None:
    """Check that an adapter fits a graph.

    Args:
        inputs: The adapter's arrays.
        shapes: The graph's optional inputs.

    Raises:
        BundleFormatError: The graph lacks an input, or one has another shape.
    """
    for name, array in inputs.items():
        shape = shapes.get(name)
        if shape is None:
            has = "others" if shapes else "none"
            raise BundleFormatError(
                f"the backbone has no optional input {name}, it has {has}: the adapter is not "
                "for this backbone"
            )
        if len(shape) != array.ndim or any(
            length not in (None, actual) for length, actual in zip(shape, array.shape, strict=True)
        ):
            expected = ", ".join("any" if length is None else str(length) for length in shape)
            raise BundleFormatError(
                f"{name} has the shape {array.shape}; the backbone takes ({expected})"
            )
    columns: dict[str, set[int]] = {}
    for name, shape in shapes.items():
        if None in shape:
            site, _, _ = name.rsplit(".", 2)
            length = inputs[name].shape[shape.index(None)] if name in inputs else 0
            columns.setdefault(site, set()).add(length)
    for site, different in columns.items():
        if len(different) > 1:
            raise BundleFormatError(
                f"the parts of {site} do not fit each other: they have "
                f"{' and '.join(map(str, sorted(different)))} columns"
            )


def run_inputs(inputs: _Inputs, shapes: Mapping[str, Shape]) -> dict[str, NDArray[np.float32]]:
    """Return the inputs of a run with an adapter that fits the graph.

    Empty arrays are left out, without effect. If an adapter stands at one site, all sites get one,
    because the graph has one switch for all adapters.

    Args:
        inputs: The adapter's arrays.
        shapes: The graph's optional inputs.
    """
    used = {name: array for name, array in inputs.items() if array.size}
    if any(name.endswith(_BIASES) for name in used):
        for name, shape in shapes.items():
            site = name.removesuffix(_BIASES[1])
            if site != name and f"{site}{_BIASES[0]}" not in used:
                # A column of zeros: onnxruntime 1.17 does not write the result of a product over
                # no columns.
                used[f"{site}.down.weight"] = np.zeros((shape[0] or 0, 1), np.float32)
                used[f"{site}.down.bias"] = np.zeros(1, np.float32)
                used[f"{site}.up.weight"] = np.zeros((1, shape[0] or 0), np.float32)
    return used
