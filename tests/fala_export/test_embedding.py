import numpy as np

from fala_export.embedding import Embedder


class Lengths:
    """Embeds a text as its length, and records the texts."""

    dimension, is_transformer = 2, False

    def __init__(self):
        self.encoded = []

    def encode(self, texts, state=None):
        self.encoded += texts
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)


def test_a_text_is_embedded_once_by_each_backbone(tmp_path):
    backbone, embedder = Lengths(), Embedder(tmp_path / "kept")
    texts = ["a", "long", "middle"]
    np.testing.assert_array_equal(embedder.embed(backbone, "d", texts, "")[:, 0], [1, 4, 6])
    # A killed process leaves a part of an entry.
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    lost = backbone.encoded[-1]
    assert embedder.pending(2, "d", [*texts, "new"]) == [lost, "new"]
    backbone.encoded.clear()
    vectors = Embedder(tmp_path / "kept").embed(backbone, "d", ["new", *texts, "new"], "")
    np.testing.assert_array_equal(vectors[:, 0], [3, 1, 4, 6, 3])
    assert sorted(backbone.encoded) == sorted([lost, "new"])
    embedder.embed(backbone, "another", texts, "")
    assert len(backbone.encoded) == 5


def test_a_damaged_embedding_is_not_used(tmp_path):
    backbone, texts = Lengths(), ["a", "long", "middle"]
    Embedder(tmp_path).embed(backbone, "d", texts, "")
    (file,) = tmp_path.iterdir()
    whole, size = file.read_bytes(), file.stat().st_size // 3
    for position in range(0, len(whole), 5):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        backbone.encoded.clear()
        for encoded in (1, 0):  # the new entry is kept, behind the damaged one
            vectors = Embedder(tmp_path).embed(backbone, "d", texts, "")
            np.testing.assert_array_equal(vectors[:, 0], [1, 4, 6])
            assert len(backbone.encoded) == encoded
            backbone.encoded.clear()
        assert file.stat().st_size == 4 * size
