"""Look for external data in an ONNX file without the onnx package.

A weight kept outside the model file escapes the bundle's digests, and a path to it could name any
file of the device. ONNX is a protocol buffer; this walks just the fields on the way to tensors
(field numbers from onnx.proto3) and skips all else.
"""

from __future__ import annotations

from fala.audit.wire import BYTES, VARINT, Wire
from fala.errors import BundleFormatError

# Message -> {field number: message in that field}.
_CHILDREN: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_MAX_DEPTH = 64


def has_external_data(model: bytes) -> bool:
    """Tell whether any tensor of an ONNX model lies outside the file.

    Args:
        model: The bytes of a ``ModelProto``.

    Returns:
        True if a tensor names external data.

    Raises:
        BundleFormatError: If the bytes are not an ONNX model.
    """
    try:
        return _walk(Wire(), memoryview(model), "Model", 0)
    except ValueError as error:
        raise BundleFormatError(f"not an ONNX model: {error}") from error


def _walk(wire: Wire, data: memoryview, message: str, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        raise ValueError("graphs nested too deeply")
    children = _CHILDREN[message]
    for field, kind, value in wire.fields(data):
        if message == "Tensor":
            if (kind == VARINT and field == _DATA_LOCATION and value) or (
                kind == BYTES and field == _EXTERNAL_DATA
            ):
                return True
        elif kind == BYTES and isinstance(value, memoryview):
            child = children.get(field)
            if child and _walk(wire, value, child, depth + 1):
                return True
    return False
