"""A bundle is written and read as one file."""

import re

import numpy as np
import pytest

from bundles import (
    DIMENSION,
    make_head,
    onnx_files,
    onnx_manifest,
    word_vector_files,
    word_vector_manifest,
    write_onnx,
    write_word_vector_release,
    write_word_vectors,
)
from checkout import SUPPORT
from fala import Bundle, BundleFormatError, DataError, FalaError
from fala.bundle import format as layout
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala_export import add_bridge, write_bundle, write_external, write_release
from fala_export.bundle.writing import add_version


def test_a_bundle_keeps_its_files(tmp_path):
    files = word_vector_files()
    written = write_bundle(tmp_path / "a.fala", word_vector_manifest(), files)
    bundle = Bundle.open(tmp_path / "a.fala")
    assert bundle.manifest == written
    assert {name: bundle.read(name) for name in bundle.manifest.files} == files
    assert bundle.head() is None
    assert bundle.backbone().dimension == DIMENSION
    with pytest.raises(BundleFormatError, match="has no file head/weight"):
        bundle.read(layout.HEAD_WEIGHT)


def test_the_same_content_has_the_same_bytes(tmp_path):
    files = onnx_files()
    write_bundle(tmp_path / "a.fala", onnx_manifest(), files)
    write_bundle(tmp_path / "b.fala", onnx_manifest(), dict(reversed(files.items())))
    assert (tmp_path / "a.fala").read_bytes() == (tmp_path / "b.fala").read_bytes()


@pytest.mark.parametrize(
    "head",
    [
        make_head("matching", query=True),
        make_head(words=True),
        make_head(labels=("x", "y", "z"), words=True),
        Head(  # a matcher with weights of the candidate by itself
            "matching",
            ("0", "1"),
            np.random.default_rng(5).normal(size=(1, 2 * DIMENSION)).astype(np.float32),
            np.ones(1, np.float32),
            dimension=DIMENSION,
        ),
    ],
    ids=["matcher", "words", "three labels", "candidate"],
)
def test_a_release_has_the_backbone_and_the_head(tmp_path, head):
    backbone = write_onnx(tmp_path / "backbone.fala")
    write_release(tmp_path / "release.fala", backbone, head, {"rows": 12})
    bundle = Bundle.open(tmp_path / "release.fala")
    assert bundle.head() == head
    assert bundle.manifest.details == {"pad_id": 0, "rows": 12}
    assert bundle.backbone_digest == backbone.backbone_digest
    assert bundle.head_digest != backbone.head_digest


def test_digests_identify_backbones_and_heads(tmp_path):
    def digest(**fields):
        write_bundle(tmp_path / "a", onnx_manifest(**fields), onnx_files())
        return Bundle.open(tmp_path / "a").backbone_digest

    plain = digest()
    assert digest(name="another name") == plain
    assert digest(max_length=9) != plain
    assert digest(details={"pad_id": 1}) != plain
    releases = [
        write_word_vector_release(tmp_path / "b", head)
        for head in (make_head(), make_head(seed=1), make_head(words=True))
    ]
    assert len({each.backbone_digest for each in releases}) == 1
    assert len({each.head_digest for each in releases}) == 3


def test_a_matcher_of_this_format_version_opens():
    # Never written again, as long as the format version stays.
    bundle = Bundle.open(SUPPORT / "data" / "matcher.fala")
    assert bundle.manifest.format_version == layout.FORMAT_VERSION
    assert bundle.manifest.labels == ("0", "1")
    np.testing.assert_array_equal(
        bundle.backbone().encode(["good", "bad good", "ugly"]), [[2, 3], [1.5, 17.375], [0, 0.5]]
    )
    head = bundle.head()
    assert head.task == "matching"
    np.testing.assert_array_equal(head.weight, [[1, -2]])
    np.testing.assert_array_equal(head.bias, [0.5])
    np.testing.assert_array_equal(head.query, [1, 0])
    # Devices keep embeddings under these digests.
    assert bundle.backbone_digest.startswith("88f06c679ea693db")
    assert bundle.head_digest.startswith("56039c15f4c6931d")


# Writing


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("files", "manifest"),
    [
        (None, {}),
        ({"../x": b""}, {}),
        ({layout.MANIFEST: b"{}"}, {}),
        ({}, {"dimension": 0}),
        ({}, {"details": {"a": object()}}),
        ({}, {"details": {"a": float("nan")}}),
        ({}, {"details": {1: 1, "a": 1}}),
        ({}, {"name": "\ud800"}),
    ],
)
def test_a_bundle_that_would_not_open_is_not_written(tmp_path, files, manifest):
    path = tmp_path / "a.fala"
    path.write_bytes(b"what was there")
    content = {} if files is None else {**word_vector_files(), **files}
    manifest = word_vector_manifest(**{"dimension": DIMENSION, **manifest})
    with pytest.raises(BundleFormatError, match=r"a\.fala: "):
        write_bundle(path, manifest, content)
    assert names_in(tmp_path) == ["a.fala"]
    assert path.read_bytes() == b"what was there"


def test_a_bundle_that_cannot_be_written_is_an_error_of_fala(tmp_path):
    bundle = write_word_vectors(tmp_path / "a.fala")
    probes = {"a": [1.0] * DIMENSION}
    for write in (
        lambda path: write_bundle(path, word_vector_manifest(), word_vector_files()),
        lambda path: write_release(path, bundle, make_head(), {}),
        lambda path: write_external(path, "cloud", "1", make_head(), probes),
        lambda path: add_version(path, bundle, 1),
    ):
        for path, why in (
            (tmp_path / "no" / "b.fala", "No such file or directory"),
            (tmp_path, "not a regular file"),
        ):
            with pytest.raises(DataError, match=re.escape(f"{path}: cannot be written: {why}")):
                write(path)
    assert names_in(tmp_path) == ["a.fala"]


@pytest.mark.parametrize("wrong", [None, 5, "x", b"x", [], [1], {1, 2}], ids=repr)
def test_wrong_arguments_of_writers_are_rejected(wrong, release, tmp_path):
    path, manifest, files = tmp_path / "x.fala", word_vector_manifest(), word_vector_files()
    zeros = np.zeros(DIMENSION, np.float32)
    bridge = Bridge("0" * 64, np.zeros((3, DIMENSION), np.float32), zeros, zeros)
    calls = [
        lambda: write_bundle(path, wrong, files),
        lambda: write_bundle(path, manifest, wrong),
        lambda: write_bundle(path, manifest, {**files, "x": wrong if wrong != b"x" else 1}),
        lambda: write_bundle(path, manifest, {**files, ("a",): b""}),
        lambda: write_bundle(path, manifest, {**files, "\ud800": b""}),
        lambda: write_release(path, wrong, make_head(), {}),
        lambda: write_release(path, release, wrong, {}),
        lambda: write_release(path, release, make_head(), wrong),
        lambda: add_bridge(path, wrong, bridge, {}),
        lambda: add_bridge(path, release, wrong, {}),
        lambda: add_bridge(path, release, bridge, wrong),
        lambda: release.read(wrong),
    ]
    if wrong is not None:  # a backbone without a head
        calls.append(lambda: write_bundle(path, manifest, files, wrong))
    for call in calls:
        with pytest.raises(FalaError):
            call()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    write_word_vectors(tmp_path / "a.fala")
    before = (tmp_path / "a.fala").read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    for target in (
        "fala.bundle.reading.Bundle.verified",
        "fala.bundle.archive.zipfile.ZipFile.writestr",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, interrupt)
            with pytest.raises(KeyboardInterrupt):
                write_bundle(tmp_path / "a.fala", word_vector_manifest(), word_vector_files(seed=9))
        assert names_in(tmp_path) == ["a.fala"]
        assert (tmp_path / "a.fala").read_bytes() == before


# Bundles that are held in memory


def test_a_held_bundle_is_read_once(tmp_path, monkeypatch):
    path = tmp_path / "a.fala"
    opened = write_onnx(path)
    held = Bundle.open(path, hold=True)
    assert held == opened and held.digest == opened.digest
    expected, files = opened.backbone().encode(["good film"]), opened.files()
    assert sorted(files) == sorted([*held.manifest.files, layout.MANIFEST])
    monkeypatch.setattr("fala.bundle.reading.hashlib", None)  # nothing is hashed any more
    path.write_bytes(b"another file by now")
    np.testing.assert_array_equal(held.backbone().encode(["good film"]), expected)
    path.unlink()
    assert held.files() == files
