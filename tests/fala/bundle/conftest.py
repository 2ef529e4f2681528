"""Make one sound bundle of every kind."""

import pytest

from bundles import make_head, write_onnx_release, write_static_release, write_word_vector_release
from tasks import write_task


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Write a complete word-vector release."""
    return write_word_vector_release(
        tmp_path_factory.mktemp("good") / "good.fala", precision="int8"
    )


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """Write a complete release of static embeddings."""
    return write_static_release(tmp_path_factory.mktemp("static") / "static.fala")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Write a complete release with an ONNX encoder."""
    return write_onnx_release(tmp_path_factory.mktemp("encoder") / "encoder.fala")


@pytest.fixture(scope="module")
def with_words(tmp_path_factory):
    """Write a word-vector release with weights of words."""
    path = tmp_path_factory.mktemp("words") / "words.fala"
    return write_word_vector_release(path, make_head(words=True))


@pytest.fixture(scope="module")
def task(tmp_path_factory, encoder):
    """Write an adapter to the encoder."""
    return write_task(tmp_path_factory.mktemp("task") / "task.fala", encoder)


@pytest.fixture
def bad(tmp_path):
    """Write bytes to the path of a bundle."""

    def write(data):
        path = tmp_path / "bad.fala"
        path.write_bytes(data)
        return path

    return write
