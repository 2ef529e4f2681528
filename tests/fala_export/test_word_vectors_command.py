import gzip
import io
import subprocess
import sys
import zipfile

from export_command import done, failed, works
from fala import Bundle
from fala_export.vectors.table import bundle_table
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
        message = failed("word-vectors", tmp_path / name, "--out", tmp_path / "g.fala")
        assert "damaged or cut short" in message
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
