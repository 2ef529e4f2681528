import json

import pytest

from bundles import archive_of, entries_of, refused, repacked
from fala.bundle import format as layout
from fala.bundle.reading import Bundle
from fala.errors import BundleFormatError, BundleVersionError

# What is refused: the manifest


def test_no_manifest(release, bad):
    entries = [entry for entry in entries_of(release.path) if entry[0] != layout.MANIFEST]
    refused(bad(archive_of(entries)), BundleFormatError, "it has no manifest.json")


@pytest.mark.parametrize(
    "manifest",
    [
        b"", b"{", b"no", b"\xff", "{}".encode("utf-16"), b"[" * 100_000, b"[]", b"null",
        b'{"format_version": 1, "format_version": 1}', b'{"a": NaN}', b'{"a": -Infinity}',
        b'{"a": 1e999}', b'{"a": ' + b"1" * 30 + b"}", b'{"a": "\\ud800"}',
        b'{"\\ud800": 1}', b"{1: 2}", b" " * (layout.MAX_MANIFEST_BYTES + 1),
    ],
)  # fmt: skip
def test_a_manifest_that_is_not_json(release, bad, manifest):
    entries = {**dict(entries_of(release.path)), layout.MANIFEST: manifest}
    refused(bad(archive_of(entries.items())), BundleFormatError, "manifest is (not|larger)")


@pytest.mark.parametrize("version", [0, 3, "1", 1.0, True, None, [], {}, -1, 10**17])
def test_an_unknown_format_version(release, bad, version):
    data = repacked(release.path, format_version=version)
    refused(bad(data), BundleVersionError, "format version .* this SDK reads versions 1 to 2:")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", None), ("name", 3),
        ("kind", "pickle"), ("kind", []), ("kind", {}), ("kind", None),
        ("dimension", 0), ("dimension", -1), ("dimension", "8"), ("dimension", True),
        ("dimension", 8.0), ("dimension", 10**12),
        ("precision", None),
        ("max_length", 0), ("max_length", "16"), ("max_length", 10**15), ("max_length", True),
        ("task", "ranking"), ("task", []), ("task", {}), ("task", None),
        ("labels", "01"), ("labels", None), ("labels", [0, 1]), ("labels", {}), ("labels", []),
        ("details", None), ("details", []),
        ("details", {"pad_id": "0"}), ("details", {"pad_id": -1}), ("details", {"pad_id": True}),
        ("details", {"pad_id": None}), ("details", {"pad_id": 2**40}),
        ("files", None), ("files", []), ("files", {layout.VECTORS: 1}),
    ],
)  # fmt: skip
def test_a_field_that_is_not_what_it_should_be(release, bad, name, value):
    refused(bad(repacked(release.path, **{name: value})), BundleFormatError, "cannot be read")


@pytest.mark.parametrize(
    "name", ["name", "kind", "dimension", "task", "labels", "details", "files"]
)
def test_a_missing_field(release, bad, name):
    entries = dict(entries_of(release.path))
    manifest = json.loads(entries[layout.MANIFEST])
    del manifest[name]
    entries[layout.MANIFEST] = json.dumps(manifest).encode()
    refused(bad(archive_of(entries.items())), BundleFormatError, "manifest cannot be read")


def test_fields_of_a_later_version_are_ignored(release, bad):
    bundle = Bundle.open(bad(repacked(release.path, bridge={"from": "glove"})))
    assert bundle.manifest == release.manifest
