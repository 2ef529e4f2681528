"""ONNX files changed field by field, and an audit's reading of them against protobuf's own."""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from fala.audit.graph import Graph, Tensor, read_onnx
from fala.audit.messages import MESSAGES, read_fields
from fala.audit.model import check_onnx
from fala.base.errors import BundleError

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
_INT32_LISTED = {"UINT8": 2, "INT8": 3, "INT16": 5, "INT32": 6, "BOOL": 9, "FLOAT16": 10}
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


def _longer_than_needed(parts, message, draw):
    if (part := _one(parts, draw, VARINT, BYTES)) is None:
        return
    key, length = part.number << 3 | part.wire, draw.choice((2, 3, 5, 6, 9, 10, 11))
    if part.wire == VARINT:
        lengths = draw.choice(((length, 1), (1, length)))
        part.written = varint(key, lengths[0]) + varint(part.value, lengths[1])
    else:
        value = joined(part.value) if isinstance(part.value, list) else part.value
        part.written = varint(key) + varint(len(value), length) + value


def _a_larger_key(parts, message, draw):
    if (part := _one(parts, draw)) is not None:
        data, key = part.bytes(), varint(part.number << 3 | part.wire)
        more = draw.choice((1, 2)) << draw.choice((29, 32, 35, 63, 64))
        part.written = varint((part.number << 3 | part.wire) + more) + data[len(key) :]


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
    forms = MESSAGES[message]
    lists = [form for form in forms.items() if form[1].many and form[1].wire != BYTES]
    for number, form in draw.sample(lists, min(1, len(lists))):
        found = [part for part in parts if part.number == number]
        for part in found:
            data = part.bytes()
            if part.wire != BYTES:
                part.wire, part.value = BYTES, data[1:]
            elif form.wire == VARINT and len(part.value) < 1_000:
                part.written = b"".join(
                    varint(number << 3) + varint(value % (1 << 64))
                    for value in _varints(part.value)
                )
            elif len(part.value) < 1_000:
                width = 4 if form.wire == FIXED32 else 8
                key = varint(number << 3 | form.wire)
                rows = range(0, len(part.value), width)
                part.written = b"".join(key + part.value[at : at + width] for at in rows)
            if draw.random() < 0.3:
                break


def _varints(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift = shift + 7 if byte > 0x7F else 0
        if byte < 0x80:
            yield value
            value = 0


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


def _another_wire(parts, message, draw):
    if (part := _one(parts, draw)) is not None:
        wire = draw.choice((VARINT, FIXED64, BYTES, FIXED32))
        value = draw.choice(_NUMBERS) if wire == VARINT else draw.randbytes(8)
        value = value[:4] if wire == FIXED32 else value
        parts[parts.index(part)] = Part(part.number, wire, value)


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


def _cut(parts, message, draw):
    if (part := _one(parts, draw)) is not None:
        data = part.bytes()
        part.written = data[: draw.randrange(len(data))]


_CHANGES = (
    _another_number, _more_than_its_type, _more_than_its_type, _longer_than_needed, _a_larger_key,
    _twice, _twice, _in_two_messages, _packed_or_not, _packed_or_not, _another_list, _another_order,
    _another_order, _another_field, _another_wire, _another_text, _one_byte, _less, _cut,
)  # fmt: skip


@cache
def varied_model() -> bytes:
    """A small model that has every field that an exporter of encoders may write."""
    from onnx import TensorProto, helper

    kinds = TensorProto.DataType
    listed = [
        helper.make_tensor(f"c{kind}", kinds.Value(kind), [3], [1, 0, 1]) for kind in _INT32_LISTED
    ]
    listed += [
        helper.make_tensor("f", kinds.FLOAT, [2, 1], [0.5, -1]),
        helper.make_tensor("d", kinds.DOUBLE, [1], [0.25]),
        helper.make_tensor("i", kinds.INT64, [2], [-7, 9]),
        helper.make_tensor("u", kinds.UINT64, [2], [1, 2**64 - 1]),
        helper.make_tensor("w", kinds.UINT32, [], [2**32 - 1]),
        helper.make_tensor("raw", kinds.FLOAT, [2], struct.pack("<2f", 1, 2), raw=True),
    ]
    fill = helper.make_tensor("", kinds.INT64, [1], [3])

    def branch(name):
        add = helper.make_node("Add", ["x", "f"], [name])
        return helper.make_graph([add], name, [], [helper.make_empty_tensor_value_info(name)])

    nodes = [
        helper.make_node("Constant", [], ["k"], value=fill),
        helper.make_node("Constant", [], ["ks"], value_ints=[1, 2]),
        helper.make_node("ConstantOfShape", ["i"], ["filled"], value=fill),
        helper.make_node("Conv", ["x", "f"], ["y"], pads=[1, 0, 1, 0], auto_pad="NOTSET"),
        helper.make_node("Gemm", ["y", "f"], ["z"], alpha=0.5, transB=1, name="gemm"),
        helper.make_node("Gelu", ["z", ""], ["g"], domain="com.microsoft", doc_string="a doc"),
        helper.make_node(
            "If", ["cBOOL"], ["out"], then_branch=branch("a"), else_branch=branch("b")
        ),
    ]
    inputs = [helper.make_tensor_value_info("x", kinds.FLOAT, ["n", 3, None])]
    outputs = [helper.make_tensor_value_info("out", kinds.FLOAT, [1])]
    between = [helper.make_tensor_value_info("y", kinds.FLOAT16, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, listed, "doc", between)
    helper.set_metadata_props(graph, {"k": "v"})
    note = graph.quantization_annotation.add(tensor_name="y")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="f")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="p", model_version=-1)
    helper.set_model_props(model, {"key": "value"})
    return bytes(model.SerializeToString())


def compared(model: bytes) -> str | None:
    """Compare an audit's reading of a model with protobuf's; None where the audit rejects it.

    Returns:
        The first difference; empty without one.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        check_onnx(model)
    except BundleError:
        return None
    try:
        proto = onnx.load_from_string(model)
    except DecodeError as error:
        return f"protobuf rejects it: {error}"
    reading = read_fields(memoryview(model), "Model")
    return _messages_differ(reading, proto, "model") or _graphs_differ(
        read_onnx(model), proto.graph
    )


def _messages_differ(fields, proto, title) -> str:
    """The first field in which a message differs from protobuf's."""
    from google.protobuf import unknown_fields

    if len(unknown_fields.UnknownFieldSet(proto)):
        return f"{title}: protobuf has unknown fields"
    counts = {}
    for name, value in fields:
        title_of = f"{title}.{name}"
        known = getattr(proto, name)
        if proto.DESCRIPTOR.fields_by_name[name].message_type is None or isinstance(
            value, memoryview
        ):
            values = value.tolist() if isinstance(value, np.ndarray) else [value]
        else:
            values = [value]
        for each in values:
            at = counts.get(name, 0)
            counts[name] = at + 1
            if isinstance(known, str | bytes | int | float) or not hasattr(known, "__len__"):
                other = known if proto.HasField(name) else None
            else:
                other = known[at] if at < len(known) else None
            if other is None:
                return f"{title_of}: protobuf has none"
            if isinstance(each, Iterator):
                if difference := _messages_differ(each, other, f"{title_of}[{at}]"):
                    return difference
            elif not _equal(each, other):
                return f"{title_of}[{at}]: {each!r:.60}, and protobuf has {other!r:.60}"
    for descriptor, known in proto.ListFields():
        count = len(known) if descriptor.is_repeated else 1
        if counts.get(descriptor.name, 0) != count:
            return f"{title}.{descriptor.name}: {counts.get(descriptor.name)} of {count}"
    return ""


def _equal(ours, theirs) -> bool:
    if isinstance(ours, memoryview):
        return bytes(ours) == theirs
    if isinstance(ours, float):
        return np.array_equal(np.float64(ours), np.float64(theirs), equal_nan=True)
    return ours == theirs


def _graphs_differ(graph: Graph, proto) -> str:
    """The first part in which an audit's graph differs from protobuf's."""
    pairs = [
        ("outputs", graph.outputs, [each.name for each in proto.output]),
        ("constants", [*graph.constants], [each.name for each in proto.initializer]),
        ("operators", len(graph.nodes), len(proto.node)),
    ]
    inputs = [each.name for each in proto.input]
    if not graph.depth:
        inputs = [name for name in inputs if name not in graph.constants]
    pairs.append(("inputs", graph.inputs, inputs))
    for name, ours, theirs in pairs:
        if ours != theirs:
            return f"{name}: {ours!r:.60}, and protobuf has {theirs!r:.60}"
    for ours, theirs in zip(graph.constants.values(), proto.initializer, strict=True):
        if difference := _tensors_differ(ours, theirs):
            return f"a constant: {difference}"
    for ours, theirs in zip(graph.nodes, proto.node, strict=True):
        domain = "" if theirs.domain in ("", "ai.onnx") else f"{theirs.domain}."
        if (ours.operator, ours.inputs, ours.outputs) != (
            f"{domain}{theirs.op_type}", [*theirs.input], [*theirs.output]
        ):  # fmt: skip
            return f"an operator: {ours!r:.60}"
        if [*ours.attributes] != [each.name for each in theirs.attribute]:
            return f"attributes: {[*ours.attributes]!r:.60}"
        for value, attribute in zip(ours.attributes.values(), theirs.attribute, strict=True):
            if difference := _attributes_differ(value, attribute):
                return f"the attribute {attribute.name!r:.40}: {difference}"
    return ""


def _attributes_differ(value, attribute) -> str:
    from onnx import AttributeProto, helper

    kind = AttributeProto.AttributeType.Name(attribute.type)
    if kind == "TENSOR":
        return _tensors_differ(value, attribute.t)
    if kind == "GRAPH":
        return _graphs_differ(value, attribute.g)
    if kind in ("STRING", "STRINGS"):
        return "" if value is None else f"{value!r:.60}"
    if kind not in ("FLOAT", "INT", "FLOATS", "INTS"):
        return f"protobuf has the type {kind}"
    theirs = helper.get_attribute_value(attribute)
    theirs = [*theirs] if kind.endswith("S") else theirs
    same = type(value) is type(theirs) and np.array_equal(
        np.array(value, object if "INT" in kind else float),
        np.array(theirs, object if "INT" in kind else float), equal_nan="INT" not in kind,
    )  # fmt: skip
    return "" if same else f"{value!r:.60}, and protobuf has {theirs!r:.60}"


def _tensors_differ(tensor: Tensor, proto) -> str:
    from onnx import TensorProto, numpy_helper

    if (tensor.dims, tensor.kind) != (tuple(proto.dims), proto.data_type):
        return f"{tensor.dims}, {tensor.kind}"
    if proto.external_data or proto.data_location != TensorProto.DEFAULT:
        return "protobuf has it outside the file"
    ours = tensor.values()
    if ours is None:
        return ""
    with np.errstate(all="ignore"):
        theirs = numpy_helper.to_array(proto)
    # Any byte but 0 is true.
    ours, theirs = (each.astype(int) if each.dtype == bool else each for each in (ours, theirs))
    same = ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
    return "" if same else f"{ours!r:.60}, and protobuf has {theirs!r:.60}"
