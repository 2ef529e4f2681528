"""Any change of a bundle's bytes is rejected, or leaves its content as it was."""

import json

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bundles import archive_of, entries_of, repacked
from fala import Bundle, BundleError
from fala.bundle import format as layout
from fala.bundle.manifest import Manifest

SETTINGS = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def mutations(size):
    """Draw edits of a file: (kind, position, byte)."""
    edit = st.tuples(
        st.sampled_from(["flip", "cut", "insert", "erase"]),
        # Half of the edits are in the directory at the end, which decides most.
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


def loaded(bundle):
    """Return what a device loads of a bundle: its head, and embeddings or adapter inputs."""
    if bundle.base is not None:
        parts = [part.ravel() for part in bundle.adapter().inputs.values()]
        return bundle.head(), np.concatenate(parts)
    return bundle.head(), bundle.backbone().encode(["a good film", ""])


def test_damaged_bundles_are_equal_or_rejected(release, tmp_path):
    good, data, (head, numbers) = release, release.path.read_bytes(), loaded(release)
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
        assert loaded(bundle)[0] == head
        assert np.array_equal(loaded(bundle)[1], numbers)

    check()


FORGED = [
    *(("release", name) for name in (layout.VOCABULARY, layout.VECTORS, layout.SCALES)),
    ("static", layout.STATIC_SETTINGS),
    *(("release", name) for name in (layout.MANIFEST, layout.HEAD_WEIGHT)),
    *(("task", name) for name in (layout.MANIFEST, *layout.ADAPTER_FILES)),
]


@SETTINGS
@given(forged=st.sampled_from(FORGED), edits=mutations(400))
def test_forged_bundles_are_finite_or_rejected(request, tmp_path, forged, edits):
    good, name = request.getfixturevalue(forged[0]), forged[1]
    content = mutated(dict(entries_of(good.path))[name], edits)
    path = tmp_path / "forged.fala"
    if name == layout.MANIFEST:
        path.write_bytes(archive_of({**dict(entries_of(good.path)), name: content}.items()))
    else:
        path.write_bytes(repacked(good.path, {name: content}))
    try:
        numbers = loaded(Bundle.open(path))[1]
    except BundleError:
        return
    assert np.isfinite(numbers).all()


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
def test_any_json_is_a_manifest_or_is_rejected(release, value, name):
    raw = json.loads(release.manifest.to_json())
    try:
        manifest = Manifest.from_json(json.dumps({**raw, name: value} if name else value).encode())
    except BundleError:
        return
    assert Manifest.from_json(manifest.to_json()) == manifest
