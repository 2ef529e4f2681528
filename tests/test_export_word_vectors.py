import json
import subprocess
import sys

import numpy as np
import pytest

from fala.bundle import Bundle
from fala.errors import ExportError
from fala_export.word_vectors import export_word_vectors

WORDS = {
    "cat": [0.5, -1.25, 2.0],
    "dog": [0.25, -1.0, 1.75],
    ". . .": [0.0, 0.0, 0.0],
    "1999": [3.0, 0.125, -0.5],
}


def write(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def good_lines():
    return [
        f"{word} {' '.join(str(number) for number in vector)}".encode()
        for word, vector in WORDS.items()
    ]


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from fala_export.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(("precision", "tolerance"), [("int8", 3 / 127), ("float16", 2e-3)])
def test_vectors_come_back_within_their_precision(tmp_path, precision, tolerance):
    source = write(tmp_path / "small.txt", good_lines())
    summary = export_word_vectors(source, tmp_path / "g.fala", precision)
    bundle = Bundle.open(tmp_path / "g.fala")
    assert summary["words"] == 4
    assert summary["damaged_lines"] == 0
    assert (bundle.manifest.name, bundle.manifest.precision) == ("small", precision)
    encoded = bundle.backbone().encode(["cat", "1999", "Cat dog"])
    cat, year, dog = (np.array(WORDS[word]) for word in ("cat", "1999", "dog"))
    np.testing.assert_allclose(encoded, [cat, year, (cat + dog) / 2], atol=tolerance / 2)


def test_a_word_with_spaces_and_a_header_are_read(tmp_path):
    source = write(tmp_path / "v.txt", [b"4 3", *good_lines()])
    export_word_vectors(source, tmp_path / "g.fala", "int8")
    vocabulary = Bundle.open(tmp_path / "g.fala").read("backbone/vocabulary.txt")
    assert vocabulary.decode().splitlines() == list(WORDS)


def test_damaged_lines_are_counted_and_the_first_is_named(tmp_path):
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
    summary = export_word_vectors(source, tmp_path / "g.fala", "int8")
    assert summary["words"] == 4
    assert summary["damaged_lines"] == len(damaged)
    assert summary["first_damage"].startswith("line 2:")


def test_top_takes_the_first_words(tmp_path):
    source = write(tmp_path / "v.txt", good_lines())
    assert export_word_vectors(source, tmp_path / "g.fala", "float16", top=2)["words"] == 2


def test_float16_refuses_what_it_cannot_hold(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"huge 1 2 1e30"])
    summary = export_word_vectors(source, tmp_path / "g.fala", "float16")
    assert "float16" in summary["first_damage"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"only words here\nand more of them\n"])
def test_a_file_without_vectors_is_refused_and_leaves_nothing(tmp_path, content):
    source = tmp_path / "v.txt"
    source.write_bytes(content)
    with pytest.raises(ExportError, match="no line holds"):
        export_word_vectors(source, tmp_path / "g.fala", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["v.txt"]


def test_the_command_prints_json(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"broken"])
    done = command("word-vectors", source, "--out", tmp_path / "g.fala", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["words"], summary["damaged_lines"]) == (4, 1)
    assert summary["first_damage"].startswith("line 5:")


def test_the_command_reports_a_bad_input_in_one_line(tmp_path):
    done = command("word-vectors", tmp_path / "none.txt", "--out", tmp_path / "g.fala")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "none.txt" in done.stderr
    source = write(tmp_path / "v.txt", good_lines())
    done = command("word-vectors", source, "--out", tmp_path / "no" / "folder" / "g.fala")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
