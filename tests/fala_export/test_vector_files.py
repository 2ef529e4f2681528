import gzip
import zipfile

import numpy as np
import pytest

from fala import Bundle
from fala_export.base.errors import ExportError
from fala_export.vectors import files as vector_files
from fala_export.vectors.lines import parse_lines
from vector_files import WORDS, export, exported_words, good_lines, names_in, write


def write_zip(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return path


@pytest.mark.parametrize(
    "line",
    ["a 1.5 2.", "a +.5 -1e-3", "a 1.-5 2.5", "a . 1.5", "a 1.5\t2.5 3.5", "a 0x1.5 1.5"],
)
def test_numbers_are_read_as_float_reads_them(line):
    valid = b"b 0.25 0.5"  # a valid line in the same block
    _, vectors, faults = parse_lines([line.encode(), valid], 2)
    try:
        expected = np.array([float(part) for part in line.split(" ")[1:]], dtype=np.float32)
    except ValueError:
        assert list(faults) == [0]
    else:
        assert faults == {}
        np.testing.assert_array_equal(vectors[0], expected)
    assert vectors[1].tolist() == [0.25, 0.5]


def test_headers_spaces_line_ends_and_byte_order_marks_are_accepted(tmp_path):
    lines = good_lines()
    for name, content in {
        "glove.txt": lines,
        "word2vec.txt": [b"4 3", *lines],
        "fasttext.vec": [b"4 3", *(line + b" " for line in lines)],
        "windows.txt": [b"\xef\xbb\xbf4 3\r", *(line + b"\r" for line in lines)],
    }.items():
        source = write(tmp_path / name, content)
        assert exported_words(source, tmp_path / "g.fala") == list(WORDS), name


def test_packed_files_are_recognised_by_their_content(tmp_path):
    content = b"".join(line + b"\n" for line in good_lines())
    (tmp_path / "v.zip").write_bytes(content)
    (tmp_path / "v.txt").write_bytes(gzip.compress(content))
    write_zip(tmp_path / "v.gz", v_txt=content)
    for name in ("v.zip", "v.txt", "v.gz"):
        assert exported_words(tmp_path / name, tmp_path / "g.fala") == list(WORDS)


def test_a_zip_must_have_one_text_file(tmp_path):
    content = b"".join(line + b"\n" for line in good_lines())
    source = write_zip(tmp_path / "a.zip", LICENSE="as is", v_vec=content)
    assert exported_words(source, tmp_path / "g.fala") == list(WORDS)
    source = write_zip(tmp_path / "b.zip", small_50d_txt=content, small_100d_txt=content)
    with pytest.raises(ExportError, match=r"contains 2 files: small\.50d\.txt, small\.100d\.txt"):
        export(source, tmp_path / "c.fala")
    with pytest.raises(ExportError, match="an empty zip"):
        export(write_zip(tmp_path / "c.zip"), tmp_path / "c.fala")
    assert not (tmp_path / "c.fala").exists()


def test_words_missing_after_the_header_are_damaged_lines(tmp_path):
    source = write(tmp_path / "v.vec", [b"40 3", *good_lines()])
    with pytest.raises(ExportError, match=r"36 of 40 lines.*line 6: the file ends 36 words before"):
        export(source, tmp_path / "g.fala")
    assert exported_words(source, tmp_path / "g.fala", top=2) == ["cat", "dog"]


def test_binary_files_are_recognised(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    rows[3, 0] = 0.0
    word2vec = b"20 3\n" + b"".join(b"w%d " % i + row.tobytes() for i, row in enumerate(rows))
    (tmp_path / "v.bin").write_bytes(word2vec)
    with pytest.raises(ExportError, match=r"word2vec's binary format; .*save_word2vec_format"):
        export(tmp_path / "v.bin", tmp_path / "g.fala")
    (tmp_path / "v.bin").write_bytes(b"\xba\x16\x4f\x2f\x0c\0\0\0" + rows.tobytes())
    with pytest.raises(ExportError, match=r"not a text file; .*\.vec"):
        export(tmp_path / "v.bin", tmp_path / "g.fala")


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
    summary = export(source, tmp_path / "g.fala", max_damaged=0.6)
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
    assert export(source, tmp_path / "g.fala")["damaged_lines"] == 1
    (tmp_path / "g.fala").unlink()
    source = write(tmp_path / "v.txt", [*many, b"broken", b"w7 1.5 2.5"])
    with pytest.raises(ExportError, match=r"2 of 101 .* line 100: .*; line 101: 'w7' is repeat"):
        export(source, tmp_path / "g.fala")
    assert names_in(tmp_path) == ["v.txt"]


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"only words here\nand more of them\n", b"5 3\n"]
)
def test_a_file_without_vectors_is_rejected_and_leaves_no_files(tmp_path, content):
    source = tmp_path / "v.txt"
    source.write_bytes(content)
    with pytest.raises(ExportError, match="no line has"):
        export(source, tmp_path / "g.fala")
    assert names_in(tmp_path) == ["v.txt"]


def test_the_length_of_a_line_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_files, "_LONGEST_LINE", 100)
    source = write(tmp_path / "v.txt", [b"word" * 1_000])
    with pytest.raises(ExportError, match="no line has"):
        export(source, tmp_path / "g.fala")


def test_a_truncated_or_damaged_file_leaves_no_bundle(tmp_path):
    lines = b"".join(b"w%d %.4f %.4f\n" % (i, i / 7, -i / 3) for i in range(5_000))
    packed, zipped = gzip.compress(lines), write_zip(tmp_path / "v.zip", v_txt=lines).read_bytes()
    (tmp_path / "v.zip").unlink()
    for content in (
        packed[: len(packed) // 2],
        packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:],
        zipped[: len(zipped) // 2],
        zipped[: len(zipped) // 2] + b"?" + zipped[len(zipped) // 2 + 1 :],
    ):
        (tmp_path / "v.txt").write_bytes(content)
        with pytest.raises(ExportError, match="damaged or truncated"):
            export(tmp_path / "v.txt", tmp_path / "g.fala")
        assert names_in(tmp_path) == ["v.txt"]
