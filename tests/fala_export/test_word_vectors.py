import gzip
import io
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from bundles import write_onnx, write_word_vector_release
from checkout import real_data
from fala.bundle.reading import Bundle
from fala.errors import ExportError
from fala_export.vectors import files as vector_files
from fala_export.vectors.lines import parse_lines
from fala_export.vectors.table import bundle_table, write_vectors
from fala_export.vectors.word_vectors import export_word_vectors

WORDS = {
    "cat": [0.5, -1.25, 2.0],
    "dog": [0.25, -1.0, 1.75],
    ". . .": [0.0, 0.0, 0.0],
    "1999": [3.0, 0.125, -0.5],
}


def good_lines():
    return [
        f"{word} {' '.join(str(number) for number in vector)}".encode()
        for word, vector in WORDS.items()
    ]


def write(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def write_zip(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return path


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", "from fala_export.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def exported_words(source, out, **options):
    export_word_vectors(source, out, "int8", **options)
    return bundle_table(Bundle.open(out))[0]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("precision", "tolerance"), [("int8", 3 / 127), ("float16", 2e-3)])
def test_vectors_come_back_within_their_precision(tmp_path, precision, tolerance):
    source = write(tmp_path / "small.txt", good_lines())
    summary = export_word_vectors(source, tmp_path / "g.fala", precision)
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
    export_word_vectors(write(tmp_path / "v.txt", good_lines()), tmp_path / "a.fala", precision)
    vectors = np.array(list(WORDS.values()), dtype=np.float32)
    details = {"damaged_lines": 0}
    write_vectors(tmp_path / "b.fala", list(WORDS), vectors, precision, name="v", details=details)
    assert (tmp_path / "a.fala").read_bytes() == (tmp_path / "b.fala").read_bytes()


@pytest.mark.parametrize(
    ("words", "bad", "match"),
    [
        (["a", "a"], 1.0, "second time"),
        (["a", ""], 1.0, "not a word"),
        (["a", "b\nc"], 1.0, "not a word"),
        (["a", "b"], np.nan, "not finite"),
        (["a", "b"], 1e6, "float16"),
        (["a"], 1.0, "1 words"),
    ],
)
def test_a_table_that_cannot_be_stored_is_refused(tmp_path, words, bad, match):
    vectors = np.array([[1.0], [bad]], dtype=np.float32)
    with pytest.raises(ExportError, match=match):
        write_vectors(tmp_path / "g.fala", words, vectors, "float16", name="v")
    assert names_in(tmp_path) == []


def test_the_smallest_and_largest_numbers_survive_int8(tmp_path):
    vectors = np.array([[1e-44, -2.8e-43], [3e38, -3e38], [1e-30, 0]], dtype=np.float32)
    write_vectors(tmp_path / "g.fala", ["tiny", "huge", "small"], vectors, "int8", name="v")
    _, stored = bundle_table(Bundle.open(tmp_path / "g.fala"))
    np.testing.assert_allclose(stored[1:], vectors[1:], rtol=1e-2)
    assert np.isfinite(stored).all()


def test_only_word_vectors_have_a_table(tmp_path):
    write_word_vector_release(tmp_path / "release.fala")
    words, vectors = bundle_table(Bundle.open(tmp_path / "release.fala"))
    assert len(words) == len(vectors)
    with pytest.raises(ExportError, match="onnx"):
        bundle_table(write_onnx(tmp_path / "x.fala"))


def test_numbers_are_read_as_float_reads_them():
    random = np.random.default_rng(0)
    forms = ["{:.5f}", "{:.1f}", "{:g}", "{:.3e}", "{:.17f}", "{:+.4f}", "{:.25f}", "{!r}"]
    numbers = random.normal(size=(40, len(forms))) * 10.0 ** random.integers(-8, 9, size=(40, 1))
    # A column a form, so that every form shares a line with others; then a line of one form each.
    texts = [[form.format(float(x)) for form, x in zip(forms, row, strict=True)] for row in numbers]
    texts += [[form.format(float(x)) for x in numbers[0]] for form in forms]
    for block in (texts, texts[-len(forms) :], texts[40:41], [[".5", "-.5", "-0.0", "007.5"] * 2]):
        lines = [f"w{i} {' '.join(text)}\n".encode() for i, text in enumerate(block)]
        words, vectors, faults = parse_lines(lines, len(forms))
        assert faults == {}
        assert words == [f"w{i}" for i in range(len(block))]
        expected = [[float(text) for text in row] for row in block]
        np.testing.assert_array_equal(vectors, np.array(expected, dtype=np.float32))


@pytest.mark.parametrize(
    "line",
    ["a 1.5 2.", "a 1.-5 2.5", "a .-5 2.5", "a -.-5 2.5", "a 1..5 25", "a . 1.5", "a 1.5\t2.5 3.5",
     "a -9223372036854775808.5 1.5", "a 9999999999999999999999.5 0.5", "a 0x1.5 1.5", "a 1.5 -."],
)  # fmt: skip
def test_what_only_resembles_numbers_is_read_as_float_reads_it(line):
    other = b"b 0.25 0.5"  # in the same block, and not to be harmed
    _, vectors, faults = parse_lines([line.encode(), other], 2)
    try:
        expected = np.array([float(part) for part in line.split(" ")[1:]], dtype=np.float32)
    except ValueError:
        assert list(faults) == [0]
    else:
        assert faults == {}
        np.testing.assert_array_equal(vectors[0], expected)
    assert vectors[1].tolist() == [0.25, 0.5]


def test_headers_word_spaces_line_ends_and_a_byte_order_mark_are_understood(tmp_path):
    lines = good_lines()
    for name, content in {
        "glove.txt": lines,
        "word2vec.txt": [b"4 3", *lines],
        "fasttext.vec": [b"4 3", *(line + b" " for line in lines)],
        "windows.txt": [b"\xef\xbb\xbf4 3\r", *(line + b"\r" for line in lines)],
    }.items():
        source = write(tmp_path / name, content)
        assert exported_words(source, tmp_path / "g.fala") == list(WORDS), name


@pytest.mark.parametrize("name", ["v.txt", "v.gz", "v.zip", "v.bin"])
def test_packed_files_are_known_by_their_content(tmp_path, name):
    content = b"".join(line + b"\n" for line in good_lines())
    plain, packed, zipped = (tmp_path / folder / name for folder in ("plain", "gzip", "zip"))
    for path in (plain, packed, zipped):
        path.parent.mkdir()
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    write_zip(zipped, v_txt=content)
    for path in (plain, packed, zipped):
        assert exported_words(path, tmp_path / "g.fala") == list(WORDS)


def test_a_zip_gives_its_only_text(tmp_path):
    content = b"".join(line + b"\n" for line in good_lines())
    source = write_zip(tmp_path / "a.zip", LICENSE="as is", v_vec=content)
    assert exported_words(source, tmp_path / "g.fala") == list(WORDS)
    source = write_zip(tmp_path / "b.zip", small_50d_txt=content, small_100d_txt=content)
    with pytest.raises(ExportError, match=r"holds 2 files: small\.50d\.txt, small\.100d\.txt"):
        export_word_vectors(source, tmp_path / "c.fala", "int8")
    with pytest.raises(ExportError, match="an empty zip"):
        export_word_vectors(write_zip(tmp_path / "c.zip"), tmp_path / "c.fala", "int8")
    assert not (tmp_path / "c.fala").exists()


def test_a_file_cut_short_leaves_no_half_bundle(tmp_path):
    lines = b"".join(b"w%d %.4f %.4f\n" % (i, i / 7, -i / 3) for i in range(5_000))
    packed = gzip.compress(lines)
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.txt", lines)
    flipped = bytearray(zipped.getvalue())
    flipped[len(flipped) // 2] ^= 0xFF
    for name, content in {
        "cut.gz": packed[: len(packed) // 2],
        "flipped.gz": packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:],
        "cut.zip": zipped.getvalue()[: len(packed) // 2],
        "flipped.zip": bytes(flipped),
    }.items():
        (tmp_path / name).write_bytes(content)
        done = command("word-vectors", tmp_path / name, "--out", tmp_path / "g.fala")
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "damaged or cut short" in done.stderr
        (tmp_path / name).unlink()
        assert names_in(tmp_path) == []


def test_words_that_the_header_promises_and_the_file_lacks_are_damage(tmp_path):
    source = write(tmp_path / "v.vec", [b"40 3", *good_lines()])
    with pytest.raises(ExportError, match=r"36 of 40 lines.*line 6: the file ends 36 words before"):
        export_word_vectors(source, tmp_path / "g.fala", "int8")
    assert exported_words(source, tmp_path / "g.fala", top=2) == ["cat", "dog"]


def test_binary_files_are_recognised(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    rows[3, 0] = 0.0
    word2vec = b"20 3\n" + b"".join(b"w%d " % i + row.tobytes() for i, row in enumerate(rows))
    (tmp_path / "v.bin").write_bytes(word2vec)
    with pytest.raises(ExportError, match=r"word2vec's binary format; .*save_word2vec_format"):
        export_word_vectors(tmp_path / "v.bin", tmp_path / "g.fala", "int8")
    (tmp_path / "v.bin").write_bytes(b"\xba\x16\x4f\x2f\x0c\0\0\0" + rows.tobytes())
    with pytest.raises(ExportError, match=r"not a text file; .*\.vec"):
        export_word_vectors(tmp_path / "v.bin", tmp_path / "g.fala", "int8")


def test_damaged_lines_are_counted_and_the_first_are_named(tmp_path):
    lines = good_lines()
    damaged = [
        b"owl 1.0 2.0",
        b"fox 1.0 nan 2.0",
        b"\xff\xfe 1 2 3",
        b"",
        b"cat 9 9 9",
        b"emu a b c",
    ]
    source = write(tmp_path / "v.txt", [lines[0], *damaged, *lines[1:]])
    summary = export_word_vectors(source, tmp_path / "g.fala", "int8", max_damaged=0.6)
    assert summary["words"] == 4
    assert summary["damaged_lines"] == len(damaged)
    assert summary["damage"] == (
        "line 2: not a word and 3 numbers; line 3: a number that is not finite; "
        "line 4: a word that is not UTF-8; ..."
    )
    assert Bundle.open(tmp_path / "g.fala").manifest.details["damaged_lines"] == len(damaged)


def test_too_many_damaged_lines_fail_the_export(tmp_path):
    many = [b"w%d 1.5 2.5" % i for i in range(99)]
    source = write(tmp_path / "v.txt", [*many, b"broken"])
    assert export_word_vectors(source, tmp_path / "g.fala", "int8")["damaged_lines"] == 1
    (tmp_path / "g.fala").unlink()
    source = write(tmp_path / "v.txt", [*many, b"broken", b"w7 1.5 2.5"])
    with pytest.raises(ExportError, match=r"2 of 101 .* line 100: .*; line 101: 'w7' for the seco"):
        export_word_vectors(source, tmp_path / "g.fala", "int8")
    assert names_in(tmp_path) == ["v.txt"]


def test_words_that_no_device_looks_up_are_counted(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"Cat 0.5 0.5 0.5", b"<unk> 1 1 1"])
    summary = export_word_vectors(source, tmp_path / "g.fala", "float16")
    assert (summary["words"], summary["words_with_capitals"]) == (6, 1)
    backbone = Bundle.open(tmp_path / "g.fala").backbone()
    np.testing.assert_allclose(backbone.encode(["Cat"])[0], WORDS["cat"])


def test_a_pipe_is_read(tmp_path):
    lines = b"".join(b"w%d 0.5 1.5\n" % i for i in range(5_000))
    for content in (lines, gzip.compress(lines)):
        subprocess.run(
            [sys.executable, "-c", "from fala_export.cli import main; main()", "word-vectors",
             "/dev/stdin", "--out", tmp_path / "g.fala"],
            input=content, check=True, timeout=60,
        )  # fmt: skip
        assert len(bundle_table(Bundle.open(tmp_path / "g.fala"))[0]) == 5_000


def test_top_takes_the_first_words_and_reads_no_further(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines()[:2], *[b"broken"] * 10])
    summary = export_word_vectors(source, tmp_path / "g.fala", "float16", top=2)
    assert (summary["words"], summary["damaged_lines"]) == (2, 0)


def test_a_vocabulary_chooses_words_and_those_missing_are_counted(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b". . 1 2 3", b"cat. 1 2 3"])
    vocabulary = write(tmp_path / "words.txt", [b"1999\r", b". . .", b"", b"owl", b"cat"])
    options = {"vocabulary": vocabulary}
    summary = export_word_vectors(source, tmp_path / "g.fala", "int8", **options)
    assert (summary["words"], summary["missing_words"], summary["damaged_lines"]) == (3, 1, 0)
    assert exported_words(source, tmp_path / "g.fala", **options) == ["cat", ". . .", "1999"]
    assert exported_words(source, tmp_path / "g.fala", top=1, **options) == ["cat"]


@pytest.mark.parametrize(
    ("content", "match"),
    [(b"owl\n", "none of the 1 words"), (b"\n\n", "no words"), (b"\xff\n", "not UTF-8")],
)
def test_a_vocabulary_without_use_is_refused(tmp_path, content, match):
    source = write(tmp_path / "v.txt", good_lines())
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(ExportError, match=match):
        export_word_vectors(source, tmp_path / "g.fala", "int8", vocabulary=tmp_path / "words.txt")
    with pytest.raises(ExportError, match=r"none\.txt: cannot be read"):
        export_word_vectors(source, tmp_path / "g.fala", "int8", vocabulary=tmp_path / "none.txt")
    assert not (tmp_path / "g.fala").exists()


def test_float16_refuses_what_it_cannot_hold(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"huge 1 2 1e30"])
    with pytest.raises(ExportError, match="line 5: a number too large for float16"):
        export_word_vectors(source, tmp_path / "g.fala", "float16")
    assert export_word_vectors(source, tmp_path / "g.fala", "int8")["words"] == 5


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"only words here\nand more of them\n", b"5 3\n"]
)
def test_a_file_without_vectors_is_refused_and_leaves_nothing(tmp_path, content):
    source = tmp_path / "v.txt"
    source.write_bytes(content)
    with pytest.raises(ExportError, match="no line holds"):
        export_word_vectors(source, tmp_path / "g.fala", "int8")
    assert names_in(tmp_path) == ["v.txt"]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_files, "_LONGEST_LINE", 100)
    source = write(tmp_path / "v.txt", [b"word" * 1_000])
    with pytest.raises(ExportError, match="no line holds"):
        export_word_vectors(source, tmp_path / "g.fala", "int8")


def test_the_command_prints_json(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"broken"])
    arguments = ("word-vectors", source, "--out", tmp_path / "g.fala", "--max-damaged", "0.5")
    done = command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["words"], summary["damaged_lines"]) == (4, 1)
    assert summary["damage"].startswith("line 5:")
    assert "damaged lines left out: 1 (line 5: " in command(*arguments).stdout


def test_the_command_reports_a_bad_input_in_one_line(tmp_path):
    done = command("word-vectors", tmp_path / "none.txt", "--out", tmp_path / "g.fala")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "none.txt" in done.stderr
    source = write(tmp_path / "v.txt", good_lines())
    done = command("word-vectors", source, "--out", tmp_path / "no" / "folder" / "g.fala")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "folder does not exist" in done.stderr


def test_a_disk_that_fills_leaves_nothing(tmp_path):
    random = np.random.default_rng(0).normal(size=(500, 100))
    lines = [f"w{i} {' '.join(f'{x:.3f}' for x in row)}".encode() for i, row in enumerate(random)]
    source = write(tmp_path / "v.txt", lines)

    def limit():
        # The kernel's signal for the limit is ignored by Python: the write fails as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = command("word-vectors", source, "--out", tmp_path / "g.fala", preexec_fn=limit)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "g.fala: cannot be written: File too large" in done.stderr
    assert names_in(tmp_path) == ["v.txt"]


def test_large_files_show_progress_on_a_terminal_and_end_whole(tmp_path):
    source = write(tmp_path / "v.txt", [b"w%d 0.5 1.5" % i for i in range(30_000)])
    program = (
        "from fala_export.vectors import files; files._LARGE = 1\n"
        "from fala_export.cli import main; main()"
    )
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, "word-vectors", source, "--out", tmp_path / "g.fala"],
        stdout=subprocess.PIPE,
        stderr=its_end,
        start_new_session=True,
    )
    os.close(its_end)
    printed, _ = process.communicate(timeout=120)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert process.returncode == 0
    assert b"words: 30000" in printed
    assert "v.txt" in shown
    assert "100%" in shown


def test_ctrl_c_leaves_nothing(tmp_path):
    pipe = tmp_path / "v.txt"
    os.mkfifo(pipe)  # the command waits for lines that never come
    process = subprocess.Popen(
        [sys.executable, "-c", "from fala_export.cli import main; main()", "word-vectors", pipe,
         "--out", tmp_path / "g.fala"],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    with pipe.open("wb"):
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert process.returncode == 1
    assert message.splitlines()[-1].endswith("interrupted")
    assert names_in(tmp_path) == ["v.txt"]


def test_a_real_piece_of_glove_is_read(tmp_path):
    sample = real_data("glove-sample", "glove.6B.50d.txt")
    summary = export_word_vectors(sample, tmp_path / "g.fala", "int8", max_damaged=0.01)
    assert summary["words"] > 2_400
    words, vectors = bundle_table(Bundle.open(tmp_path / "g.fala"))
    rows = {
        line.split()[0]: line.split()[1:]
        for line in sample.read_text("latin-1").split("\n")
        if line
    }
    for word in ("the", "of", "king"):
        expected = np.array(rows[word], dtype=np.float32)
        np.testing.assert_allclose(
            vectors[words.index(word)], expected, atol=np.abs(expected).max() / 250
        )
