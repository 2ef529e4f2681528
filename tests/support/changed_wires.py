"""ONNX files changed field by field, and an audit's reading of them against protobuf's own."""

import random
import re
import struct
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from hashlib import sha256

from fala.audit.graph import Graph, read_onnx
from fala.audit.messages import MESSAGES
from fala.base.errors import BundleError

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
#: One number of a packed list, by its wire type.
_ONE = {VARINT: rb"[\x80-\xff]*[\0-\x7f]", FIXED64: rb"(?s).{8}", FIXED32: rb"(?s).{4}"}
#: The shape and the numbers of a constant of each type.
_LISTED = {
    **dict.fromkeys(("UINT8", "INT8", "INT16", "INT32", "BOOL", "FLOAT16"), ([3], [1, 0, 1])),
    "FLOAT": ([2, 1], [0.5, -1]), "DOUBLE": ([1], [0.25]), "INT64": ([2], [-7, 9]),
    "UINT64": ([2], [1, 2**64 - 1]), "UINT32": ([], [2**32 - 1]),
}  # fmt: skip
_NUMBERS = (
    0, 1, 2, 5, 6, 7, 9, 127, 128, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 32) + 5,
    (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 5,
)  # fmt: skip


@dataclass
class Part:
    """A field: its number, wire type, and value; a message's is a list of parts.

    ``message`` is the name of the message that the value is, and ``written`` are bytes to write in
    place of it all.
    """

    number: int
    wire: int
    value: "int | bytes | list[Part]"
    message: str = ""
    written: bytes | None = None

    def bytes(self) -> bytes:
        if self.written is not None:
            return self.written
        key = varint(self.number << 3 | self.wire)
        if self.wire == VARINT:
            return key + varint(self.value)
        value = joined(self.value) if isinstance(self.value, list) else self.value
        return key + (varint(len(value)) if self.wire == BYTES else b"") + value


def varint(value: int, length: int = 1) -> bytes:
    """A number, in ``length`` bytes at least; 64 bits are not the most."""
    data = bytearray()
    while value > 0x7F or len(data) < length - 1:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def field(number: int, content: bytes) -> bytes:
    """A field that holds bytes."""
    return Part(number, BYTES, content).bytes()


def joined(parts: list[Part]) -> bytes:
    return b"".join(part.bytes() for part in parts)


def parts_of(data: bytes, message: str = "Model") -> list[Part]:
    """The fields of a sound message."""
    parts, at = [], 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        wire, kind = key & 7, MESSAGES[message][key >> 3].kind
        if wire == VARINT:
            parts.append(Part(key >> 3, wire, number()))
            continue
        length = {FIXED64: 8, FIXED32: 4}.get(wire) or number()
        value = data[at : at + length]
        at += length
        inner = kind if kind in MESSAGES else ""
        parts.append(Part(key >> 3, wire, parts_of(value, inner) if inner else value, inner))
    return parts


def changed(model: bytes, seed: str) -> tuple[bytes, list[str]]:
    """A model with one to three changes of its fields; and the names of the changes."""
    draw, parts = random.Random(seed), parts_of(model)
    names = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        where, message = _chosen(parts, draw)
        change = draw.choice(_CHANGES)
        change(where, message, draw)
        names.append(change.__name__.strip("_").replace("_", " "))
    data = joined(parts)
    if draw.random() < 0.03:
        data = data[: draw.randrange(len(data))]
        names.append("cut short")
    return data, names


def _chosen(parts: list[Part], draw: random.Random) -> tuple[list[Part], str]:
    """The fields of a random message: deep ones are as probable as others."""
    message = "Model"
    while True:
        inner = [part for part in parts if isinstance(part.value, list) and part.written is None]
        if not inner or draw.random() < 0.15:
            return parts, message
        number = draw.choice(sorted({part.number for part in inner}))
        part = draw.choice([part for part in inner if part.number == number])
        parts, message = part.value, part.message


def _one(parts: list[Part], draw: random.Random, *wires: int) -> Part | None:
    found = [part for part in parts if part.written is None and part.wire in (wires or range(6))]
    return draw.choice(found) if found else None


def _another_number(parts, message, draw):
    if (part := _one(parts, draw, VARINT)) is not None:
        part.value = draw.choice((*_NUMBERS, part.value + 1, draw.getrandbits(64)))


def _more_than_its_type(parts, message, draw):
    if (part := _one(parts, draw, VARINT)) is not None:
        part.value += draw.choice((1, 2, 3)) << draw.choice((31, 32, 33, 63, 64, 65, 69, 70, 77))


def _twice(parts, message, draw):
    if (part := _one(parts, draw)) is not None:
        other = Part(part.number, part.wire, part.value, part.message)
        if isinstance(part.value, int):
            other.value = draw.choice((*_NUMBERS, part.value))
        elif isinstance(part.value, bytes):
            other.value = draw.choice((part.value, part.value[::-1]))
        parts.insert(draw.randrange(len(parts) + 1), other)


def _in_two_messages(parts, message, draw):
    inner = [part for part in parts if isinstance(part.value, list) and len(part.value) > 1]
    if inner:
        part = draw.choice(inner)
        at = draw.randrange(1, len(part.value))
        rest = Part(part.number, part.wire, part.value[at:], part.message)
        part.value = part.value[:at]
        parts.insert(draw.choice((parts.index(part) + 1, len(parts))), rest)


def _packed_or_not(parts, message, draw):
    lists = [form for form in MESSAGES[message].items() if form[1].many and form[1].wire != BYTES]
    for number, form in draw.sample(lists, min(1, len(lists))):
        for part in [part for part in parts if part.number == number]:
            if part.wire != BYTES:
                part.wire, part.value = BYTES, part.bytes()[1:]
            elif len(part.value) < 1_000:
                key, values = (
                    varint(number << 3 | form.wire),
                    re.findall(_ONE[form.wire], part.value),
                )
                part.written = b"".join(key + value for value in values)
            if draw.random() < 0.3:
                break


def _another_list(parts, message, draw):
    """A list of numbers of any type, with numbers that are too long, or too large, among others."""
    lists = [(number, form) for number, form in MESSAGES[message].items() if form.many]
    lists = [(number, form) for number, form in lists if form.wire != BYTES]
    if lists:
        number, form = draw.choice(lists)
        count = draw.choice((0, 1, 2, 5))
        value = draw.randbytes(count * 8)
        if form.wire == VARINT:
            length = draw.choice((1, 1, 1, 2, 10, 11))
            value = b"".join(varint(draw.choice(_NUMBERS), length) for _ in range(count))
        part = Part(number, BYTES, value)
        parts.insert(draw.randrange(len(parts) + 1), part)


def _another_order(parts, message, draw):
    draw.shuffle(parts)


def _another_field(parts, message, draw):
    """A field of any number and wire type; most are unknown, or of the wrong type."""
    number = draw.choice((0, *range(1, 30), 100, 15_000, 19_500, (1 << 29) - 1))
    wire = draw.randrange(6)
    value = {
        VARINT: draw.choice(_NUMBERS), FIXED64: draw.randbytes(8), FIXED32: draw.randbytes(4),
        BYTES: draw.choice((b"", b"x", b"\x0a\x01x", draw.randbytes(9))), GROUP: b"",
        END_GROUP: b"",
    }[wire]  # fmt: skip
    part = Part(number, wire, value)
    if wire == GROUP:
        inside = _one(parts, draw)
        content = inside.bytes() if inside is not None else b""
        part.written = varint(number << 3 | GROUP) + content + varint(number << 3 | END_GROUP)
    parts.insert(draw.randrange(len(parts) + 1), part)


def _another_text(parts, message, draw):
    if (part := _one(parts, draw, BYTES)) is not None and isinstance(part.value, bytes):
        part.value = draw.choice(
            (b"", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\0b", "é".encode())
        )


def _one_byte(parts, message, draw):
    if (part := _one(parts, draw)) is not None:
        data = bytearray(part.bytes())
        data[draw.randrange(min(len(data), 40))] = draw.choice((0, 1, 127, 128, 255, 5, 8, 10))
        part.written = bytes(data)


def _less(parts, message, draw):
    if (part := _one(parts, draw)) is not None:
        parts.remove(part)


_CHANGES = (
    _another_number, _more_than_its_type, _twice, _twice, _in_two_messages, _packed_or_not,
    _packed_or_not, _another_list, _another_order, _another_field, _another_text, _one_byte, _less,
)  # fmt: skip


@cache
def varied_model() -> bytes:
    """A small model that has every field that an exporter of encoders may write."""
    from onnx import TensorProto, helper

    kinds = TensorProto.DataType
    listed = [helper.make_tensor(name, kinds.Value(name), *rest) for name, rest in _LISTED.items()]
    listed.append(helper.make_tensor("raw", kinds.FLOAT, [2], struct.pack("<2f", 1, 2), raw=True))
    fill = helper.make_tensor("", kinds.INT64, [1], [3])

    def branch(name):
        add = helper.make_node("Add", ["x", "FLOAT"], [name])
        return helper.make_graph([add], name, [], [helper.make_empty_tensor_value_info(name)])

    nodes = [
        helper.make_node("Constant", [], ["k"], value=fill),
        helper.make_node("Constant", [], ["ks"], value_ints=[1, 2]),
        helper.make_node("ConstantOfShape", ["INT64"], ["filled"], value=fill),
        helper.make_node("Conv", ["x", "FLOAT"], ["y"], pads=[1, 0, 1, 0], auto_pad="NOTSET"),
        helper.make_node("Gemm", ["y", "FLOAT"], ["z"], alpha=0.5, transB=1, name="gemm"),
        helper.make_node("Gelu", ["z", ""], ["g"], domain="com.microsoft", doc_string="a doc"),
        helper.make_node("If", ["BOOL"], ["out"], then_branch=branch("a"), else_branch=branch("b")),
    ]
    for kind in ("FLOAT", "INT", "FLOATS", "INTS"):  # which protobuf writes without a zero
        nodes[0].attribute.add(name=f"no {kind}", type=kind)
    inputs = [helper.make_tensor_value_info("x", kinds.FLOAT, ["n", 3, None])]
    outputs = [helper.make_tensor_value_info("out", kinds.FLOAT, [1])]
    between = [helper.make_tensor_value_info("y", kinds.FLOAT16, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, listed, "doc", between)
    helper.set_metadata_props(graph, {"k": "v"})
    note = graph.quantization_annotation.add(tensor_name="y")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="FLOAT")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="p", model_version=-1)
    helper.set_model_props(model, {"key": "value"})
    return bytes(model.SerializeToString())


def compared(model: bytes) -> str | None:
    """Compare an audit's reading of a model with that of the model as protobuf writes it again.

    Returns:
        The first difference; empty without one; None where the audit rejects the model.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        ours = _content(read_onnx(model))
    except (BundleError, ValueError):
        return None
    try:
        proto = onnx.load_from_string(model)
        proto.DiscardUnknownFields()
        theirs = _content(read_onnx(proto.SerializeToString()))
    except (BundleError, DecodeError, ValueError) as error:
        return f"it is rejected as protobuf reads it: {error}"
    pairs = enumerate(zip(ours, theirs, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), 0)
    return "" if ours == theirs else f"{ours[at:]:.60}, and protobuf has {theirs[at:]:.60}"


def _content(graph: Graph) -> str:
    """Return all that a graph consists of; NaN equals NaN in it."""

    def plain(value):
        if is_dataclass(value):
            return [plain(getattr(value, each.name)) for each in fields(value)]
        if isinstance(value, dict):
            return [[name, plain(each)] for name, each in sorted(value.items())]
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return sha256(value).hexdigest() if isinstance(value, memoryview) else value

    return repr(plain(graph))
