import gzip
import subprocess
import sys

import numpy as np
import pytest

from bundles import write_onnx, write_word_vector_release
from checkout import real_data
from export_command import done, works
from fala import Bundle
from fala_export.base.errors import ExportError
from fala_export.vectors.table import bundle_table, write_vectors
from vector_files import WORDS, export, exported_words, good_lines, names_in, write


@pytest.mark.parametrize(("precision", "tolerance"), [("int8", 3 / 127), ("float16", 2e-3)])
def test_vectors_are_restored_within_their_precision(tmp_path, precision, tolerance):
    source = write(tmp_path / "small.txt", good_lines())
    summary = export(source, tmp_path / "g.fala", precision)
    bundle = Bundle.open(tmp_path / "g.fala")
    assert (summary["words"], summary["damaged_lines"], summary["damage"]) == (4, 0, "")
    assert (bundle.manifest.name, bundle.manifest.precision) == ("small", precision)
    words, vectors = bundle_table(bundle)
    assert words == list(WORDS)
    np.testing.assert_allclose(vectors, list(WORDS.values()), atol=tolerance / 2)
    encoded = bundle.backbone().encode(["cat", "1999", "Cat dog"])
    np.testing.assert_allclose(encoded[2], vectors[:2].mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_a_table_in_memory_gives_the_same_bundle_as_its_file(tmp_path, precision):
    export(write(tmp_path / "v.txt", good_lines()), tmp_path / "a.fala", precision)
    vectors = np.array(list(WORDS.values()), dtype=np.float32)
    details = {"damaged_lines": 0}
    write_vectors(tmp_path / "b.fala", list(WORDS), vectors, precision, name="v", details=details)
    assert (tmp_path / "a.fala").read_bytes() == (tmp_path / "b.fala").read_bytes()


@pytest.mark.parametrize(
    ("words", "bad", "match"),
    [
        (["a", ""], 1.0, "not a word"),
        (["a", "b\nc"], 1.0, "not a word"),
        (["a", "b"], np.nan, "not finite"),
    ],
)
def test_a_table_that_cannot_be_stored_is_refused(tmp_path, words, bad, match):
    vectors = np.array([[1.0], [bad]], dtype=np.float32)
    with pytest.raises(ExportError, match=match):
        write_vectors(tmp_path / "g.fala", words, vectors, "float16", name="v", details={})
    assert names_in(tmp_path) == []


def test_the_smallest_and_largest_numbers_survive_int8(tmp_path):
    vectors = np.array([[1e-44, -2.8e-43], [3e38, -3e38], [1e-30, 0]], dtype=np.float32)
    words = ["tiny", "huge", "small"]
    write_vectors(tmp_path / "g.fala", words, vectors, "int8", name="v", details={})
    _, stored = bundle_table(Bundle.open(tmp_path / "g.fala"))
    np.testing.assert_allclose(stored[1:], vectors[1:], rtol=1e-2)
    assert np.isfinite(stored).all()


def test_a_bundle_without_word_vectors_has_no_table(tmp_path):
    write_word_vector_release(tmp_path / "release.fala")
    words, vectors = bundle_table(Bundle.open(tmp_path / "release.fala"))
    assert len(words) == len(vectors)
    with pytest.raises(ExportError, match="onnx"):
        bundle_table(write_onnx(tmp_path / "x.fala"))


def test_words_with_capitals_are_counted(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"Cat 0.5 0.5 0.5", b"<unk> 1 1 1"])
    summary = export(source, tmp_path / "g.fala", "float16")
    assert (summary["words"], summary["words_with_capitals"]) == (6, 1)
    backbone = Bundle.open(tmp_path / "g.fala").backbone()
    np.testing.assert_allclose(backbone.encode(["Cat"])[0], WORDS["cat"])


def test_a_vocabulary_selects_words_and_missing_words_are_counted(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b". . 1 2 3", b"cat. 1 2 3"])
    vocabulary = write(tmp_path / "words.txt", [b"1999\r", b". . .", b"", b"owl", b"cat"])
    options = {"vocab": vocabulary}
    summary = export(source, tmp_path / "g.fala", **options)
    assert (summary["words"], summary["missing_words"], summary["damaged_lines"]) == (3, 1, 0)
    assert exported_words(source, tmp_path / "g.fala", **options) == ["cat", ". . .", "1999"]
    assert exported_words(source, tmp_path / "g.fala", top=1, **options) == ["cat"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"owl\n", "contains none of the 1 requested words"),
        (b"\n\n", "no words"),
        (b"\xff\n", "not UTF-8"),
    ],
)
def test_an_unusable_vocabulary_is_rejected(tmp_path, content, match):
    source = write(tmp_path / "v.txt", good_lines())
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(ExportError, match=match):
        export(source, tmp_path / "g.fala", vocab=tmp_path / "words.txt")
    with pytest.raises(ExportError, match=r"none\.txt: cannot be read"):
        export(source, tmp_path / "g.fala", vocab=tmp_path / "none.txt")
    assert not (tmp_path / "g.fala").exists()


def test_float16_rejects_numbers_beyond_its_range(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"huge 1 2 1e30"])
    with pytest.raises(ExportError, match="line 5: a number too large for float16"):
        export(source, tmp_path / "g.fala", "float16")
    assert export(source, tmp_path / "g.fala")["words"] == 5


def test_a_real_piece_of_glove_is_read(tmp_path):
    sample = real_data("glove-sample", "glove.6B.50d.txt")
    summary = export(sample, tmp_path / "g.fala", max_damaged=0.01)
    assert summary["words"] > 2_400
    words, vectors = bundle_table(Bundle.open(tmp_path / "g.fala"))
    rows = dict(line.split(" ", 1) for line in sample.read_text("latin-1").split("\n") if line)
    for word in ("the", "of", "king"):
        expected = np.array(rows[word].split(), dtype=np.float32)
        found = vectors[words.index(word)]
        np.testing.assert_allclose(found, expected, atol=np.abs(expected).max() / 250)


def test_the_command_reads_a_pipe(tmp_path):
    packed = gzip.compress(b"".join(b"w%d 0.5 1.5\n" % i for i in range(5_000)))
    code = "from fala_export.cli import main; main()"
    words = ["word-vectors", "/dev/stdin", "--out", tmp_path / "g.fala"]
    subprocess.run([sys.executable, "-c", code, *words], input=packed, check=True, timeout=60)
    assert len(bundle_table(Bundle.open(tmp_path / "g.fala"))[0]) == 5_000


def test_the_command_says_how_many_lines_are_damaged(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"broken"])
    arguments = ("word-vectors", source, "--out", tmp_path / "g.fala", "--max-damaged", "0.5")
    summary = done(*arguments)
    assert (summary["words"], summary["damaged_lines"]) == (4, 1)
    assert "damaged lines left out: 1 (line 5: " in works(*arguments).stdout
