"""The messages of an ONNX file, read strictly: what is accepted, every reader reads alike.

An ONNX file is a protocol buffer: messages of numbered fields. Its readers differ in unusual cases,
and some of them drop bits: they merge a message that appears twice, take the last of two numbers,
cut a number to 32 bits, and skip what they do not know. No exporter writes such things, so they are
rejected here:

- a field that ``MESSAGES`` does not have, or that has another wire type (such as a group);
- a second value of a field that may appear once, or a second member of a choice;
- a number that is not in its shortest form, or is outside its type;
- a text that is not in UTF-8.

All readers agree on fields in any order, and on a list of numbers that is packed, or not, or both,
so these are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Fields of one file, in all its messages: some fifty for each of 20,000 operators.
MOST_FIELDS = 1_000_000

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: The wire types of numbers; those of all else are bytes.
_WIRES = {
    "int32": _VARINT, "int64": _VARINT, "uint64": _VARINT, "float": _FIXED32, "double": _FIXED64,
}  # fmt: skip
#: NumPy's types for numbers that are not varints.
_FLOATS: dict[str, np.dtype[Any]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_INT32 = 1 << 31
# Bytes of a packed list of varints that are decoded at a time; and of the longest varint, whose
# last byte has one bit.
_PIECE, _LONGEST = 1 << 16, 10


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a field.

    Attributes:
        name: Its name in onnx.proto3.
        kind: A number's type, ``"text"``, ``"bytes"``, or the name of a message.
        many: Whether it may appear several times.
        choice: Whether it is a member of the message's choice, of which one may be there.
        wire: The wire type of one value.
    """

    name: str
    kind: str
    many: bool
    choice: bool
    wire: int


# The fields of onnx.proto3 by message: number, name and type, with * for a list and ? for a member
# of a choice. An enumeration is an int32. Of what no encoder needs only the bytes are read, and
# rejected by the caller.
_FIELDS = {
    "Model": "1 ir_version int64, 2 producer_name text, 3 producer_version text, 4 domain text, "
    "5 model_version int64, 6 doc_string text, 7 graph Graph, 8 opset_import OperatorSetId*, "
    "14 metadata_props StringStringEntry*, 20 training_info bytes*, 25 functions bytes*",
    "OperatorSetId": "1 domain text, 2 version int64",
    "StringStringEntry": "1 key text, 2 value text",
    "Graph": "1 node Node*, 2 name text, 5 initializer Tensor*, 10 doc_string text, "
    "11 input ValueInfo*, 12 output ValueInfo*, 13 value_info ValueInfo*, "
    "14 quantization_annotation TensorAnnotation*, 15 sparse_initializer bytes*, "
    "16 metadata_props StringStringEntry*",
    "TensorAnnotation": "1 tensor_name text, 2 quant_parameter_tensor_names StringStringEntry*",
    "ValueInfo": "1 name text, 2 type Type, 3 doc_string text, 4 metadata_props StringStringEntry*",
    "Type": "1 tensor_type TensorType, 6 denotation text",
    "TensorType": "1 elem_type int32, 2 shape TensorShape",
    "TensorShape": "1 dim Dimension*",
    "Dimension": "1 dim_value int64?, 2 dim_param text?, 3 denotation text",
    "Node": "1 input text*, 2 output text*, 3 name text, 4 op_type text, 5 attribute Attribute*, "
    "6 doc_string text, 7 domain text, 8 overload text, 9 metadata_props StringStringEntry*",
    "Attribute": "1 name text, 2 f float, 3 i int64, 4 s bytes, 5 t Tensor, 6 g Graph, "
    "7 floats float*, 8 ints int64*, 9 strings bytes*, 10 tensors bytes*, 11 graphs bytes*, "
    "13 doc_string text, 14 tp bytes, 15 type_protos bytes*, 20 type int32, 21 ref_attr_name text, "
    "22 sparse_tensor bytes, 23 sparse_tensors bytes*",
    "Tensor": "1 dims int64*, 2 data_type int32, 3 segment bytes, 4 float_data float*, "
    "5 int32_data int32*, 6 string_data bytes*, 7 int64_data int64*, 8 name text, "
    "9 raw_data bytes, 10 double_data double*, 11 uint64_data uint64*, 12 doc_string text, "
    "13 external_data bytes*, 14 data_location int32, 16 metadata_props StringStringEntry*",
}


def _forms(fields: str) -> Iterator[tuple[int, Form]]:
    for each in fields.split(", "):
        number, name, kind = each.split()
        plain = kind.rstrip("*?")
        many, choice = kind.endswith("*"), kind.endswith("?")
        yield int(number), Form(name, plain, many, choice, _WIRES.get(plain, _BYTES))


#: The fields of each message by their numbers.
MESSAGES = {message: dict(_forms(fields)) for message, fields in _FIELDS.items()}


def read_fields(
    data: memoryview, message: str, counter: Iterator[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a message: the name and the value of each.

    A message inside is an iterator like this one; what the caller does not read of it is read
    before the next field. Numbers of a list are yielded in arrays, of one number or more.

    Args:
        data: The message's bytes.
        message: Its name in ``MESSAGES``.
        counter: Counts the fields of the file; None if the message is the whole file.

    Raises:
        ValueError: Readers may differ in what it is, or there are too many fields.
    """
    forms, seen = MESSAGES[message], set[str]()
    counter = count(1) if counter is None else counter
    position, end = 0, len(data)
    while position < end:
        if next(counter) > MOST_FIELDS:
            raise ValueError(f"the file has more than {MOST_FIELDS} fields")
        key, position = _varint(data, position)
        form, wire = forms.get(key >> 3), key & 7
        if form is None:
            raise ValueError(f"{message} has the field {key >> 3}, which no encoder has")
        if not form.many:
            once = "one of a choice" if form.choice else form.name
            if once in seen:
                raise ValueError(f"{message} has {once} twice")
            seen.add(once)
        packed = form.many and wire == _BYTES != form.wire
        if wire != form.wire and not packed:
            raise ValueError(f"the field {form.name} of {message} is of another type")
        if wire == _VARINT:
            value, position = _varint(data, position)
            numbers = _whole(np.array([value], np.uint64), form.kind)
            yield form.name, numbers if form.many else int(numbers[0])
            continue
        if (length := _WIDTHS.get(wire)) is None:
            length, position = _varint(data, position)
        if position + length > end:
            raise ValueError("a field runs past the end")
        content = data[position : position + length]
        position += length
        if packed:
            for numbers in _packed(content, form.kind):
                yield form.name, numbers
        elif form.kind in _FLOATS:
            numbers = np.frombuffer(content, _FLOATS[form.kind])
            yield form.name, numbers if form.many else float(numbers[0])
        elif form.kind == "text":
            yield form.name, _text(content)
        elif form.kind == "bytes":
            yield form.name, content
        else:
            inner = read_fields(content, form.kind, counter)
            yield form.name, inner
            for _ in inner:
                pass


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Read a number in its shortest form; return it with the position behind it."""
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64 or (shift and not byte):
                break
            return value, position
        shift += 7
        if shift == 7 * _LONGEST:
            break
    raise ValueError("a number runs past the end, or is longer than it needs to be")


def _packed(content: memoryview, kind: str) -> Iterator[NDArray[Any]]:
    """Yield the numbers of a packed list, in pieces."""
    if kind in _FLOATS:
        dtype = _FLOATS[kind]
        if len(content) % dtype.itemsize:
            raise ValueError("a list of numbers is cut short")
        yield np.frombuffer(content, dtype)
        return
    rest = np.frombuffer(content, np.uint8)
    while len(rest):
        piece = rest[:_PIECE]
        ends = np.flatnonzero(piece < 0x80) + 1
        if not len(ends):
            raise ValueError("a list of numbers is cut short")
        piece, rest = piece[: ends[-1]], rest[ends[-1] :]
        lengths = np.diff(ends, prepend=0)
        last = piece[ends - 1]
        longest = lengths == _LONGEST
        if ((lengths > _LONGEST) | longest & (last > 1) | (lengths > 1) & (last == 0)).any():
            raise ValueError("a number in a list is longer than it needs to be")
        starts = ends - lengths
        shifts = 7 * (np.arange(len(piece)) - np.repeat(starts, lengths))
        bits = (piece & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
        yield _whole(np.bitwise_or.reduceat(bits, starts), kind)


def _whole(numbers: NDArray[np.uint64], kind: str) -> NDArray[Any]:
    """Convert varints to numbers of a type."""
    if kind == "uint64":
        return numbers
    signed = numbers.view(np.int64)
    if kind == "int32" and ((signed < -_INT32) | (signed >= _INT32)).any():
        raise ValueError("a 32-bit number has more than 32 bits")
    return signed


def _text(content: memoryview) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("a text is not in UTF-8") from error
