"""A task's adapter, as inputs of a backbone beside the texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit.graph import form_of
from fala.base.errors import BundleFormatError, safe_line

_BIASES = (".down.bias", ".up.bias")  # of an adapter; the second has no bottleneck's length

Shape = tuple["int | None", ...]
"""Lengths of an input's axes; None for a length that depends on the adapter."""


class Coded(Mapping[str, "NDArray[np.float32]"]):
    """Arrays by name, some of which are kept in int8 and decoded at each access.

    This saves memory, because a device may have many tasks but runs one at a time.

    Args:
        floats: The arrays in float32.
        codes: The other arrays: int8 codes, shape (n, m), and the step of each column, shape (m,).
    """

    def __init__(
        self,
        floats: Mapping[str, NDArray[np.float32]],
        codes: Mapping[str, tuple[NDArray[np.int8], NDArray[np.float32]]],
    ) -> None:
        self._floats = {name: _frozen(array) for name, array in floats.items()}
        self._codes = {name: (_frozen(code), _frozen(step)) for name, (code, step) in codes.items()}

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """Return an array."""
        if name in self._floats:
            return self._floats[name]
        code, step = self._codes[name]
        array = code.astype(np.float32)  # first: quicker than in the product
        array *= step
        return array

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        yield from self._floats
        yield from self._codes

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._floats) + len(self._codes)


# Compared by identity: arrays have no hash.
@dataclass(frozen=True, eq=False)
class AdapterWeights:
    """An adapter's arrays, for the optional inputs of a graph; see ``OnnxEncoder.encode``.

    Attributes:
        inputs: Float32 arrays by the inputs' names; writable ones are copied. Without an input
            the backbone runs as without that part of the adapter.

    Raises:
        BundleFormatError: An input's name is not one of an adapter's, or its array does not have
            finite float32 numbers, or is larger than any adapter's.
    """

    inputs: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        for name, array in self.inputs.items():
            _check(name, array)
        if not isinstance(self.inputs, Coded):
            frozen = {name: _frozen(array) for name, array in self.inputs.items()}
            object.__setattr__(self, "inputs", MappingProxyType(frozen))


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
        if (form := form_of(entry.name)) is None:
            continue  # another constant
        shape = tuple(length if isinstance(length, int) else None for length in entry.shape)
        free = {axis for axis, length in enumerate(shape) if length is None}
        if len(shape) != form.axes or free != {form.free} - {None}:
            raise BundleFormatError(f"the optional input {entry.name} has another shape")
        shapes[entry.name] = shape
    return shapes


def check_inputs(adapter: AdapterWeights, shapes: Mapping[str, Shape]) -> None:
    """Check that an adapter fits a graph.

    Args:
        adapter: The adapter.
        shapes: The graph's optional inputs.

    Raises:
        BundleFormatError: The graph lacks an input, or one has another shape.
    """
    for name, array in adapter.inputs.items():
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
    lengths: dict[str, set[int]] = {}
    for name in shapes:
        form = form_of(name)
        if form is not None and form.free is not None:
            array_or_none = adapter.inputs.get(name)
            length = 0 if array_or_none is None else array_or_none.shape[form.free]
            lengths.setdefault(form.group, set()).add(length)
    for group, different in lengths.items():
        if len(different) > 1:
            raise BundleFormatError(
                f"the parts of {group} do not fit each other: they have "
                f"{' and '.join(map(str, sorted(different)))} columns"
            )


def run_inputs(
    adapter: AdapterWeights, shapes: Mapping[str, Shape]
) -> dict[str, NDArray[np.float32]]:
    """Return the inputs of a run with an adapter that fits the graph.

    Empty arrays are left out, without effect. If an adapter stands at one site, all sites get one,
    because the graph has one switch for all adapters.

    Args:
        adapter: The adapter.
        shapes: The graph's optional inputs.
    """
    inputs = {name: array for name, array in adapter.inputs.items() if array.size}
    if any(name.endswith(_BIASES) for name in inputs):
        for name, shape in shapes.items():
            site = name.removesuffix(_BIASES[1])
            if site != name and f"{site}{_BIASES[0]}" not in inputs:
                # A column of zeros: onnxruntime 1.17 does not write the result of a product over
                # no columns.
                inputs[f"{site}.down.weight"] = np.zeros((shape[0] or 0, 1), np.float32)
                inputs[f"{site}.down.bias"] = np.zeros(1, np.float32)
                inputs[f"{site}.up.weight"] = np.zeros((1, shape[0] or 0), np.float32)
    return inputs


def _check(name: str, array: NDArray[np.float32]) -> None:
    form = form_of(name) if isinstance(name, str) else None
    if form is None:
        raise BundleFormatError(
            f"{safe_line(name, 80)!r} is not an input of an adapter (adapter.0.output.down.weight, "
            "and its like)"
        )
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        dtype = getattr(array, "dtype", type(array).__name__)
        raise BundleFormatError(f"{name} is of {dtype}; it must be an array of float32")
    if array.ndim != form.axes:
        raise BundleFormatError(
            f"{name} has the shape {array.shape}; it should have {form.axes} axes"
        )
    if form.free is not None and array.shape[form.free] > form.most:
        raise BundleFormatError(
            f"{name} has the shape {array.shape}: its axis {form.free} may be {form.most} long"
        )
    if not np.isfinite(array).all():
        raise BundleFormatError(f"{name} contains NaN or infinity")


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy, read-only."""
    if array.flags.writeable or array.base is not None or not array.flags.c_contiguous:
        array = np.array(array, order="C")
        array.flags.writeable = False
    return array
