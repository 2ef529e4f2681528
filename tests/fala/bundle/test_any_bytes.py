import json

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bundles import DIMENSION, archive_of, entries_of, repacked
from fala.bundle import format as layout
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.errors import BundleError

SETTINGS = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# Any bytes at all


def mutations(size):
    """Edits of a file: (kind, position, byte)."""
    edit = st.tuples(
        st.sampled_from(["flip", "cut", "insert", "erase"]),
        # The directory at the end holds all that decides; it is hit half of the time.
        st.integers(0, size - 1) | st.integers(max(0, size - 1500), size - 1),
        st.integers(1, 255),
    )
    return st.lists(edit, min_size=1, max_size=3)


def mutated(data, edits):
    for kind, position, byte in edits:
        position = min(position, len(data))
        if kind == "flip":
            flipped = bytes(b ^ byte for b in data[position : position + 1])
            data = data[:position] + flipped + data[position + 1 :]
        elif kind == "cut":
            data = data[:position]
        elif kind == "insert":
            data = data[:position] + bytes([byte]) * (byte % 7 + 1) + data[position:]
        else:
            data = data[:position] + data[position + byte % 7 + 1 :]
    return data


@pytest.mark.parametrize("name", ["release", "encoder"])
def test_damaged_bundles_open_equal_or_are_refused(name, request, tmp_path):
    good = request.getfixturevalue(name)
    data = good.path.read_bytes()
    path = tmp_path / "damaged.fala"

    @SETTINGS
    @given(mutations(len(data)))
    def check(edits):
        path.write_bytes(mutated(data, edits))
        try:
            bundle = Bundle.open(path)
        except BundleError:
            return
        assert bundle.manifest == good.manifest
        head, backbone = bundle.head(), bundle.backbone()
        assert np.array_equal(head.weight, good.head().weight)
        assert backbone.dimension == DIMENSION

    check()


@SETTINGS
@given(
    name=st.sampled_from(
        [layout.MANIFEST, layout.VOCABULARY, layout.VECTORS, layout.SCALES, layout.HEAD_WEIGHT]
    ),
    edits=mutations(400),
)
def test_a_forger_who_mends_the_digests_meets_no_foreign_error(release, tmp_path, name, edits):
    content = mutated(dict(entries_of(release.path))[name], edits)
    path = tmp_path / "forged.fala"
    if name == layout.MANIFEST:
        path.write_bytes(archive_of({**dict(entries_of(release.path)), name: content}.items()))
    else:
        path.write_bytes(repacked(release.path, {name: content}))
    try:
        bundle = Bundle.open(path)
        bundle.head()
        embedding = bundle.backbone().encode(["a good film", ""])
    except BundleError:
        return
    assert embedding.shape == (2, bundle.manifest.dimension)


@SETTINGS
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    ),
    st.sampled_from(["", *(name for name in Manifest.__dataclass_fields__)]),
)
@example([], "kind")
def test_any_json_is_a_manifest_or_is_refused(release, value, name):
    raw = json.loads(release.manifest.to_json())
    try:
        manifest = Manifest.from_json(json.dumps({**raw, name: value} if name else value).encode())
    except BundleError:
        return
    assert Manifest.from_json(manifest.to_json()) == manifest
