import gzip
import io
import os
import pty
import signal
import subprocess
import sys
import zipfile

import numpy as np

from export_command import done, fails, run, works
from fala import Bundle
from fala_export.vectors.table import bundle_table
from full_disk import files_of_at_most
from vector_files import good_lines, names_in, write

#: What a process runs.
PROGRAM = [sys.executable, "-c", "from fala_export.cli import main; main()", "word-vectors"]


def test_a_truncated_file_leaves_no_bundle(tmp_path):
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
        result = run("word-vectors", tmp_path / name, "--out", tmp_path / "g.fala")
        fails(result, "damaged or cut short")
        (tmp_path / name).unlink()
        assert names_in(tmp_path) == []


def test_the_command_reads_a_pipe(tmp_path):
    packed = gzip.compress(b"".join(b"w%d 0.5 1.5\n" % i for i in range(5_000)))
    command = [*PROGRAM, "/dev/stdin", "--out", tmp_path / "g.fala"]
    subprocess.run(command, input=packed, check=True, timeout=60)
    assert len(bundle_table(Bundle.open(tmp_path / "g.fala"))[0]) == 5_000


def test_the_command_prints_json(tmp_path):
    source = write(tmp_path / "v.txt", [*good_lines(), b"broken"])
    arguments = ("word-vectors", source, "--out", tmp_path / "g.fala", "--max-damaged", "0.5")
    summary = done(*arguments)
    assert (summary["words"], summary["damaged_lines"]) == (4, 1)
    assert summary["damage"].startswith("line 5:")
    assert "damaged lines left out: 1 (line 5: " in works(*arguments).stdout


def test_the_command_reports_a_bad_input_in_one_line(tmp_path):
    fails(run("word-vectors", tmp_path / "none.txt", "--out", tmp_path / "g.fala"), "none.txt")
    source = write(tmp_path / "v.txt", good_lines())
    missing = tmp_path / "no" / "folder" / "g.fala"
    fails(run("word-vectors", source, "--out", missing), "folder does not exist")


def test_a_full_disk_leaves_no_files(tmp_path):
    random = np.random.default_rng(0).normal(size=(500, 100))
    lines = [f"w{i} {' '.join(f'{x:.3f}' for x in row)}".encode() for i, row in enumerate(random)]
    source = write(tmp_path / "v.txt", lines)
    with files_of_at_most(20_000):
        result = run("word-vectors", source, "--out", tmp_path / "g.fala")
    fails(result, "g.fala: cannot be written: File too large")
    assert names_in(tmp_path) == ["v.txt"]


def test_large_files_show_progress_on_a_terminal(tmp_path):
    source = write(tmp_path / "v.txt", [b"w%d 0.5 1.5" % i for i in range(30_000)])
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, source, "--out", tmp_path / "g.fala"],
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


def test_ctrl_c_leaves_no_files(tmp_path):
    pipe = tmp_path / "v.txt"
    os.mkfifo(pipe)  # the command waits for lines that never come
    process = subprocess.Popen(
        [*PROGRAM, pipe, "--out", tmp_path / "g.fala"], stderr=subprocess.PIPE, text=True
    )
    with pipe.open("wb"):
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert message.splitlines()[-1].endswith("interrupted")
    assert names_in(tmp_path) == ["v.txt"]
