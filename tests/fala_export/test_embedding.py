import json
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import embed_together
from embed_together import TEXTS, Recorder
from fala_export.base.errors import ExportError
from fala_export.embedding import Embedder, Embeddings, VectorFile
from fala_export.embedding.table import text_keys
from full_disk import files_of_at_most
from together import run_together

#: Adds entries without end, two at a time: its argument is the table's folder.
WRITER = """
import sys
from pathlib import Path
import numpy as np
from fala_export.embedding.table import VectorFile, text_keys
table, number = VectorFile(Path(sys.argv[1]), 300), int(sys.argv[2])
while True:
    texts = [str(number), str(number + 1)]
    table.add(text_keys(texts), np.array([[float(text)] * 300 for text in texts], np.float32))
    number += 2
"""


class Lengths:
    """Embeds a text as its length, and records the texts."""

    dimension = 2

    def __init__(self):
        self.encoded = []

    def encode(self, texts, state=None):
        self.encoded += texts
        return np.array([[len(text), 1] for text in texts], dtype=np.float32).reshape(-1, 2)


def test_a_text_is_embedded_once_by_each_backbone(tmp_path):
    backbone, embedder = Lengths(), Embedder(tmp_path / "kept")
    texts = ["a", "long", "middle"]
    np.testing.assert_array_equal(embedder.embed(backbone, "d", texts, "")[:, 0], [1, 4, 6])
    # A killed process leaves a part of an entry.
    keys = tmp_path / "kept" / "d" / "keys"
    keys.write_bytes(keys.read_bytes()[:-3])
    lost = backbone.encoded[-1]
    backbone.encoded.clear()
    vectors = Embedder(tmp_path / "kept").embed(backbone, "d", ["new", *texts, "new"], "")
    np.testing.assert_array_equal(vectors[:, 0], [3, 1, 4, 6, 3])
    assert sorted(backbone.encoded) == sorted([lost, "new"])
    embedder.embed(backbone, "another", texts, "")
    assert len(backbone.encoded) == 5


@pytest.mark.parametrize("name", ["keys", "vectors"])
def test_a_damaged_embedding_is_encoded_again(tmp_path, name):
    backbone, texts = Lengths(), ["a", "long", "middle"]
    Embedder(tmp_path).embed(backbone, "d", texts, "")
    files = {file: file.read_bytes() for file in (tmp_path / "d").iterdir()}
    file = tmp_path / "d" / name
    size = len(files[file]) // 3
    for position in range(0, len(files[file]), 5):
        for other, data in files.items():
            other.write_bytes(data)
        damaged = bytearray(files[file])
        damaged[position] ^= 4
        file.write_bytes(damaged)
        backbone.encoded.clear()
        for encoded in (1, 0):  # the new entry is behind the damaged one
            vectors = Embedder(tmp_path).embed(backbone, "d", texts, "")
            np.testing.assert_array_equal(vectors[:, 0], [1, 4, 6])
            assert len(backbone.encoded) == encoded
            backbone.encoded.clear()
        assert file.stat().st_size == 4 * size


def test_a_mapping_reads_from_the_disk(tmp_path):
    backbone, embedder = Lengths(), Embedder(tmp_path)
    texts = ["a", "long", "middle"]
    mapping = embedder.mapping(backbone, "d", texts, "")
    assert dict(mapping).keys() == set(texts)
    np.testing.assert_array_equal(mapping.take(["middle", "a", "middle"])[:, 0], [6, 1, 6])
    np.testing.assert_array_equal(mapping["long"], [4, 1])
    assert "long" in mapping
    assert "other" not in mapping
    with pytest.raises(KeyError):
        mapping["other"]
    copied = pickle.loads(pickle.dumps(mapping))
    np.testing.assert_array_equal(copied.take(texts), mapping.take(texts))
    assert sorted(backbone.encoded) == sorted(texts)


def test_a_mapping_without_a_folder_keeps_its_files_as_long_as_itself():
    mapping = Embedder().mapping(Lengths(), "d", ["a", "long"], "")
    folder = mapping.table.folder
    np.testing.assert_array_equal(mapping.take(["long"]), [[4, 1]])
    del mapping
    assert not folder.exists()


def test_an_entry_that_is_damaged_later_is_an_error(tmp_path):
    mapping = Embedder(tmp_path).mapping(Lengths(), "d", ["a", "long"], "")
    file = tmp_path / "d" / "vectors"
    data = bytearray(file.read_bytes())
    data[9] ^= 1
    file.write_bytes(data)
    Embeddings(VectorFile(tmp_path / "d", 2), ["a"])
    with pytest.raises(ExportError, match="damaged"):
        mapping.take(["a", "long"])


def test_a_full_disk_and_an_unusable_folder_are_errors(tmp_path):
    backbone, texts = Lengths(), [f"text {number}" for number in range(100)]
    with files_of_at_most(500), pytest.raises(ExportError, match="cannot be written"):
        Embedder(tmp_path).embed(backbone, "d", texts, "")
    vectors = Embedder(tmp_path).embed(backbone, "d", texts, "")
    np.testing.assert_array_equal(vectors, backbone.encode(texts))
    assert len(VectorFile(tmp_path / "d", 2)) == 100
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "other" / "keys").mkdir(parents=True)
    for digest in ("file", "other"):
        with pytest.raises(ExportError, match=digest):
            Embedder(tmp_path).embed(backbone, digest, texts, "")


def test_texts_whose_keys_begin_alike_are_told_apart(tmp_path):
    table, keys = VectorFile(tmp_path, 1), text_keys(["a", "b", "c"]).copy()
    keys["first"] = 7
    table.add(keys[:2], np.array([[1], [2]]))
    table.add(keys[:1], np.array([[3]]))  # a newer entry
    np.testing.assert_array_equal(table.find(keys), [2, 1, -1])
    assert [table.find_one(key.tobytes()) for key in keys] == [2, 1, -1]


@pytest.mark.slow
def test_a_table_sees_a_folder_made_anew_with_as_many_entries(tmp_path):
    table = VectorFile(tmp_path / "d", 1)
    table.add(text_keys("ab"), np.float32([[1], [2]]))
    assert table.find(text_keys("ab")).tolist() == [0, 1]
    shutil.rmtree(tmp_path / "d")
    VectorFile(tmp_path / "d", 1).add(text_keys("bc"), np.float32([[3], [4]]))
    assert table.find(text_keys("bca")).tolist() == [0, 1, -1]
    vectors, are_whole = table.read(table.find(text_keys("bc")))
    assert vectors.tolist() == [[3], [4]] and are_whole.all()


def test_killed_writers_leave_whole_entries(tmp_path):
    """Two processes write at once, and each is killed at any time."""
    for attempt in range(2):
        starts = [attempt * 10**6, attempt * 10**6 + 500_000]
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, str(start)])
            for start in starts
        ]
        end = time.monotonic() + 60
        while (VectorFile(tmp_path, 300).find(text_keys(map(str, starts))) < 0).any():
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.05 + 0.013 * attempt)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        table = VectorFile(tmp_path, 300)
        rows = np.arange(len(table))
        vectors, whole = table.read(rows)
        assert whole.all()
        texts = [str(int(vector[0])) for vector in vectors]
        assert len({int(text) // 500_000 for text in texts}) == 2 * attempt + 2
        np.testing.assert_array_equal(table.find(text_keys(texts)), rows)


@pytest.mark.slow
def test_processes_that_work_together_encode_a_share_each(tmp_path):
    code = Path(embed_together.__file__).read_text()
    assert run_together(code, tmp_path, folder=tmp_path / "printed") == [0, 0]
    expected = Recorder().encode(TEXTS)
    shares = []
    for rank in range(2):
        record = json.loads((tmp_path / f"{rank}.json").read_text())
        first, again, alone = map(np.array, record["vectors"])
        np.testing.assert_array_equal(first, [*expected[:200], *expected[:50]])
        np.testing.assert_array_equal(again, expected)
        np.testing.assert_array_equal(alone, expected[:10])
        shares.append(record["encoded"])
    assert [len(share) for share in shares] == [155, 155]
    assert sorted([*shares[0], *shares[1]]) == sorted([*TEXTS, *TEXTS[:10]])
    assert len(VectorFile(tmp_path / "embeddings" / "d", 2)) == len(TEXTS)
