"""Any change of a bundle's bytes is rejected, or leaves its content as it was."""

import json
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bundles import archive_of, entries_of, repacked
from fala import Bundle, BundleError
from fala.bundle import format as layout
from fala.bundle.manifest import Manifest


def damaged(data, chance):
    """Return bytes with one to three changes; half of them are in the directory at the end."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(max(0, chance.choice((0, len(data) - 1500))), len(data) + 1)
        length = chance.choice((1, 1, 4, 7))
        flipped = bytes(byte ^ 1 << chance.randrange(8) for byte in data[at : at + 1])
        data = chance.choice((
            data[:at] + flipped + data[at + 1 :],
            data[:at] + chance.randbytes(length) + data[at:],
            data[:at] + data[at + length :],
            data[:at],
        ))  # fmt: skip
    return data


def loaded(bundle):
    """Return what a device loads of a bundle: its head, and embeddings or adapter inputs."""
    if bundle.base is not None:
        parts = [part.ravel() for part in bundle.adapter().inputs.values()]
        return bundle.head(), np.concatenate(parts)
    return bundle.head(), bundle.backbone().encode(["a good film", ""])


def test_damaged_bundles_are_equal_or_rejected(release, tmp_path):
    data, (head, numbers) = release.path.read_bytes(), loaded(release)
    path = tmp_path / "damaged.fala"
    for seed in range(100):
        path.write_bytes(damaged(data, random.Random(seed)))
        try:
            bundle = Bundle.open(path)
        except BundleError:
            continue
        assert bundle.manifest == release.manifest
        assert loaded(bundle)[0] == head
        assert np.array_equal(loaded(bundle)[1], numbers)


FORGED = [
    *(("release", name) for name in (layout.VOCABULARY, layout.VECTORS, layout.SCALES)),
    ("static", layout.STATIC_SETTINGS),
    *(("release", name) for name in (layout.MANIFEST, layout.HEAD_WEIGHT)),
    *(("task", name) for name in (layout.MANIFEST, *layout.ADAPTER_FILES)),
]


@pytest.mark.parametrize(("kind", "name"), FORGED)
def test_forged_bundles_are_finite_or_rejected(request, tmp_path, kind, name):
    good, path = request.getfixturevalue(kind), tmp_path / "forged.fala"
    entries = dict(entries_of(good.path))
    for seed in range(12):
        content = damaged(entries[name], random.Random(seed))
        if name == layout.MANIFEST:
            path.write_bytes(archive_of({**entries, name: content}.items()))
        else:
            path.write_bytes(repacked(good.path, {name: content}))
        try:
            numbers = loaded(Bundle.open(path))[1]
        except BundleError:
            continue
        assert np.isfinite(numbers).all()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
