"""Wrong paths, manifests and heads raise FaLA's own errors."""

import os

import numpy as np
import pytest

from bundles import DIMENSION, make_head, repacked, word_vector_files, word_vector_manifest
from fala import Bundle, BundleError, BundleFormatError, FalaError
from fala.base.errors import safe_line
from fala.model.bridge import Bridge
from fala_export import add_bridge, write_bundle, write_release


def test_paths_without_a_bundle_file_are_rejected(tmp_path):
    for path in (tmp_path, tmp_path / ("x" * 5000), "/dev/null", tmp_path / "none"):
        with pytest.raises(BundleError):
            Bundle.open(path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(BundleFormatError, match="not a file"):  # without waiting for a writer
            Bundle.open(tmp_path / "pipe")


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


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a\nb", "a\0", "\u202ecod", "\x9b31m", "\u2028", "x" * 3000], ids=repr
)
def test_manifests_with_control_characters_are_rejected(text, release, bad):
    for fields in ({"name": text}, {"precision": text}, {"labels": ["0", text]}):
        with pytest.raises(BundleFormatError) as caught:
            Bundle.open(bad(repacked(release.path, **fields)))
        assert str(caught.value).isprintable()


def test_names_may_be_in_any_script(release, bad):
    for text in ("Größe 3", "مرحبا", "日本", "👩‍👩‍👧 ok", "naïve"):
        assert Bundle.open(bad(repacked(release.path, name=text)))


def test_safe_line_makes_one_printable_line():
    assert safe_line("a\n\x1b[31m b\u202e") == "a \\x1b[31m b\\u202e"
    assert len(safe_line("x" * 10_000)) == 500
