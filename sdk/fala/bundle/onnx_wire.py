"""Look for external data in an ONNX file without the onnx package.

A weight kept outside the model file escapes the bundle's digests, and a path to it could name any
file of the device. ONNX is a protocol buffer; this walks just the fields on the way to tensors
(field numbers from onnx.proto3) and skips all else.
"""

from __future__ import annotations

from fala.errors import BundleFormatError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

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
        return _walk(memoryview(model), "Model", 0)
    except ValueError as error:
        raise BundleFormatError(f"not an ONNX model: {error}") from error


def _walk(data: memoryview, message: str, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        raise ValueError("graphs nested too deeply")
    children = _CHILDREN[message]
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        if key >> 32:
            # Other readers drop the upper bits and would see a field that this walk skipped.
            raise ValueError("a field's number is too large")
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            if message == "Tensor" and field == _DATA_LOCATION and value:
                return True
        elif wire == _BYTES:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("a field runs past the end")
            if message == "Tensor" and field == _EXTERNAL_DATA:
                return True
            child = children.get(field)
            if child and _walk(data[position : position + length], child, depth + 1):
                return True
            position += length
        elif wire in (_FIXED64, _FIXED32):
            position += 8 if wire == _FIXED64 else 4
            if position > len(data):
                raise ValueError("a field runs past the end")
        else:
            raise ValueError(f"unknown wire type {wire}")
    return False


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("a number runs past the end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
