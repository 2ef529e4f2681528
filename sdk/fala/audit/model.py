"""The audit of a model: it decides from the bytes whether the model may be loaded.

Nothing is run, and no cost is computed: a child process runs the model under limits before a device
installs it (``fala.slots.validation``). The audit's rules hold for each operator alone. They find
the usual ways in which a small file asks for much memory or time, also where an app can start no
process:

- an operator of ``OPERATORS``, after those whose results it uses, with names that are defined once;
- a size is a constant within a bound, or is computed from lengths by few operators;
- what is computed from constants alone, while the model is loaded, is not much larger than they;
- products read no constant more than a few times.
"""

from __future__ import annotations

import contextlib
import math
from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from fala.audit import limits
from fala.audit.graph import Graph, Node, Tensor, UnsoundError, read_onnx
from fala.audit.operators import COMBINING, LENGTHS, OPERATORS, SELECTING, SIZED
from fala.base.errors import BundleFormatError, safe_line

_DOUBLE = 11  # of the types of numbers
_PRODUCTS = ("MatMul", "Gemm", "Attention", "Conv", "Einsum")  # parts of operators' names


def check_onnx(model: bytes) -> None:
    """Check that an ONNX file can be read, and that it is the whole model.

    Raises:
        BundleFormatError: The file cannot be read, it has parts that no encoder needs, or a tensor
            keeps its numbers outside the file.
    """
    with _bundle_errors():
        read_onnx(model)


def audit_model(model: bytes) -> None:
    """Check the structure, the operators and the stated sizes of an ONNX file.

    Args:
        model: The model's bytes.

    Raises:
        BundleFormatError: The file is not a model, it has an operator that no encoder needs, a
            tensor keeps its numbers outside the file, or a rule of this module is broken.
    """
    with _bundle_errors():
        graph = read_onnx(model)
        _Rules(graph).check(graph, ChainMap())


@contextmanager
def _bundle_errors() -> Iterator[None]:
    try:
        yield
    except UnsoundError as error:
        raise BundleFormatError(
            f"the model asks for more than an encoder needs, and is not loaded: {safe_line(error)}"
        ) from error
    except ValueError as error:
        raise BundleFormatError(f"the model cannot be read: {safe_line(error)}") from error


@dataclass(frozen=True, slots=True)
class _Value:
    """The knowledge that the rules have of a tensor.

    Attributes:
        numbers: The approximate number of its numbers if it depends on constants alone, else None.
        factor: The factor by which constants make a tensor of this size larger than the lengths of
            texts do; None if the tensor is not a size.
        tensor: The constant that it is, or None.
    """

    numbers: int | None = None
    factor: int | None = None
    tensor: Tensor | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> _Value:
        """Describe a constant, of which a few whole numbers are a size."""
        count, factor = math.prod(tensor.dims), None
        numbers = tensor.values() if count <= limits.DIMENSIONS else None
        if numbers is not None and (numbers == np.trunc(numbers)).all():  # not NaN
            with contextlib.suppress(OverflowError):  # of infinity
                factor = math.prod(max(abs(int(number)), 1) for number in numbers.ravel())
        return cls(count, factor, tensor)


_UNKNOWN = _Value()

_Values = ChainMap[str, _Value]


class _Rules:
    """Checks a graph's operators, and counts what they ask for together.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._computable = max(limits.COMPUTED, limits.COPIES * graph.size["numbers"])
        self._readable = max(limits.WORK, limits.READS * graph.size["numbers"])

    def check(self, graph: Graph, values: _Values) -> None:
        """Check a graph, or a branch in one.

        Its operators are in the order in which they are computed, as ONNX requires.

        Args:
            graph: The graph.
            values: Those of the names that are defined: around a branch at first; the graph's own
                are added to the first map.

        Raises:
            UnsoundError: A rule is broken.
        """
        own = values.maps[0]
        for name, tensor in graph.constants.items():
            own[name] = _UNKNOWN if name in graph.optional else _Value.of(tensor)
        own.update(dict.fromkeys(graph.inputs, _UNKNOWN))
        for node in graph.nodes:
            if node.operator not in OPERATORS:
                raise UnsoundError(f"{node.operator!r:.60} is an operator that no encoder needs")
            _check_defined(node.inputs, values)
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    self.check(value, values.new_child())
            try:
                result = self._value(node, [values.get(name, _UNKNOWN) for name in node.inputs])
            except UnsoundError as error:
                raise UnsoundError(f"{node.operator!r:.60}: {error}") from error
            for name in filter(None, node.outputs):
                if name in own:
                    raise UnsoundError(f"{name!r:.60} is defined twice")
                own[name] = result
        _check_defined(graph.outputs, values)

    def _value(self, node: Node, inputs: Sequence[_Value]) -> _Value:
        """Describe an operator's result, and count what it computes from constants."""
        if node.operator == "Constant":
            return _Value.of(_constant(node))
        if node.operator in LENGTHS:
            return _Value(factor=1)
        used = [value for name, value in zip(node.inputs, inputs, strict=True) if name]
        fixed = [value.numbers for value in used if value.numbers is not None]
        if any(word in node.operator for word in _PRODUCTS):
            self._readable -= sum(fixed)
            if self._readable < 0:
                raise UnsoundError("its products read the constants too often")
        stated, factor = _stated(node, inputs), _factor(node, used)
        if len(fixed) < len(used):
            return _Value(factor=factor)
        numbers = _numbers(node, used) if stated is None else stated
        self._computable -= numbers
        if self._computable < 0:
            raise UnsoundError("it computes constants that are larger than those in the file")
        return _Value(numbers, factor)


def _check_defined(names: Sequence[str], values: _Values) -> None:
    for name in names:
        if name and name not in values:
            raise UnsoundError(f"{name!r:.60} is used before it is defined")


def _constant(node: Node) -> Tensor:
    """Return the constant of an operator without inputs."""
    for name, value in node.attributes.items():
        if name == "value" and isinstance(value, Tensor):
            return value
        numbers = value if isinstance(value, list) else [value]
        if name.startswith("value_") and all(isinstance(each, int | float) for each in numbers):
            return Tensor((len(numbers),), _DOUBLE, None, len(numbers), numbers)
    raise UnsoundError("it is a constant of a kind that no encoder has")


def _stated(node: Node, inputs: Sequence[_Value]) -> int | None:
    """Return how many numbers a tensor has if constants state its size, or else None.

    Raises:
        UnsoundError: The size is too large, or depends on more than lengths.
    """
    pads = node.attributes.get("pads")  # of a convolution, and of Pad's first versions
    if isinstance(pads, list) and math.prod(max(abs(pad), 1) for pad in pads) > limits.ELEMENTS:
        raise UnsoundError("it has margins that no encoder has")
    stating = [inputs[at] for at in SIZED.get(node.operator, ()) if at < len(inputs)]
    for value in stating:
        # What constants alone decide, exporters have computed.
        computed = value.numbers is not None and value.tensor is None
        if value.factor is None or computed:
            raise UnsoundError(
                "its memory has no bound: its size is neither a constant nor computed from a "
                "text's length"
            )
    if not stating or any(value.tensor is None for value in stating):
        return None
    numbers = math.prod(value.factor or 1 for value in stating)
    if node.operator == "Tile":
        numbers *= inputs[0].numbers or 1
    if numbers > limits.ELEMENTS:
        raise UnsoundError(f"it makes a tensor of more than {limits.ELEMENTS} numbers")
    return numbers


def _factor(node: Node, used: Sequence[_Value]) -> int | None:
    """Return the factor of an operator's result, or None if the result is not a size."""
    if node.operator == "ConstantOfShape":
        value = node.attributes.get("value")
        filled = _Value.of(value).factor if isinstance(value, Tensor) else 1
        return 1 if filled == 1 else None
    if node.operator in SELECTING:
        return used[0].factor if used else None
    factors = [value.factor for value in used if value.factor is not None]
    if node.operator not in COMBINING or not factors or len(factors) < len(used):
        return None
    factor = COMBINING[node.operator](factors)
    return factor if factor <= limits.FACTOR else None


def _numbers(node: Node, used: Sequence[_Value]) -> int:
    """Return about how many numbers an operator computes from constants alone."""
    counts = [value.numbers or 0 for value in used]
    if node.operator == "Concat":
        return sum(counts)
    shapes = [value.tensor.dims for value in used if value.tensor is not None]
    if len(shapes) == len(used) > 1:
        if node.operator == "MatMul":
            return math.prod(shapes[0][:-1]) * math.prod(shapes[1][-1:])
        # The shape to which the operators are broadcast that are.
        aligned = zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)
        return math.prod(map(max, aligned))
    return max(counts, default=1)
