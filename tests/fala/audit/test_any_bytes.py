"""Any bytes are a graph or are rejected, in time and memory that their size explains."""

import random
import struct
import tracemalloc

import pytest

pytest.importorskip("onnx")

from bundles import onnx_model
from changed_wires import field, varint
from fala.audit.model import audit_model
from fala.base.errors import BundleError
from optional_graphs import optional_model

MODELS = [onnx_model().SerializeToString(), optional_model()]


@pytest.mark.parametrize("model", MODELS, ids=["plain", "optional"])
def test_any_bytes_are_a_graph_or_are_rejected(model):
    for seed in range(300):
        chance, data = random.Random(seed), bytearray(model)
        for _ in range(chance.choice((1, 2, 8))):
            at = chance.randrange(len(data))
            data[at] = chance.choice((0, 1, 2, 127, 128, 255))
            if seed % 5 == 0:  # a long number in place of a short one
                data[at:at] = b"\xff" * chance.choice((1, 8, 9, 10))
        if seed % 9 == 0:
            del data[chance.randrange(len(data)) :]
        try:
            audit_model(bytes(data))
        except BundleError as error:
            assert str(error).isprintable()


def tensor(dims=(), kind=1, raw=b"", **lists):
    """Return a constant; ``lists`` are fields of numbers."""
    data = b"".join(varint(1 << 3) + varint(length % (1 << 64)) for length in dims)
    data += varint(2 << 3) + varint(kind) + field(8, b"c") + (field(9, raw) if raw else b"")
    return data + b"".join(field(int(name[1:]), content) for name, content in lists.items())


HUGE = (1 << 62, 1 << 62)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x00" * 100, b"\xff" * 100, b"ORTM", b"PK\x03\x04" * 8, b"\x3a\xff\x01", b"\x80",
        b"\xba\x80\x80\x80\x10\x00",  # field 7 with upper bits that some readers drop
        varint(7 << 3 | 2) + varint(1 << 63),  # a length beyond the end
        varint(7 << 3 | 3) * 10_000,  # groups
        field(7, b"") * 2, field(7, b"\x0a" * 1_000),
        field(7, field(5, tensor(HUGE))),
        field(7, field(5, tensor((-1, 4), raw=bytes(4)))),
        field(7, field(5, tensor((4,) * 100, raw=bytes(4)))),
        field(7, field(5, tensor((1,), kind=8))),  # texts
        field(7, field(5, tensor((1,), kind=999, raw=bytes(4)))),
        field(7, field(5, tensor((1,), raw=bytes(4), f4=bytes(4)))),  # two contents
        field(7, field(5, tensor((1 << 20,), f4=bytes(4 << 19)))),
        field(7, field(5, tensor((3,), f4=bytes(5)))),
        field(7, field(5, tensor((1,), f7=b"\xff" * 11))),
        field(7, field(5, tensor((0,))) * 30_000),
        field(7, field(1, field(1, b"x") * 3_000)),
        field(7, field(11, b"\x0a\x01x") * 2 + field(1, field(4, b"\xff\xfe\x00"))),
        field(7, field(1, b"") * 1_000_001),
        field(25, b"") + field(7, b""),
        field(7, field(15, b"")),
        struct.pack("<I", 8) + b"ORTM" + bytes(1_000),
    ],
    ids=range(28),
)  # fmt: skip
def test_hostile_bytes_are_rejected(data):
    tracemalloc.start()
    try:
        with pytest.raises(BundleError) as caught:
            audit_model(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 27
    finally:
        tracemalloc.stop()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 700
