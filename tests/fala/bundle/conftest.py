import pytest

from bundles import write_onnx_release, write_word_vector_release


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A whole word-vector release."""
    return write_word_vector_release(
        tmp_path_factory.mktemp("good") / "good.fala", precision="int8"
    )


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A whole release with an ONNX encoder."""
    return write_onnx_release(tmp_path_factory.mktemp("encoder") / "encoder.fala")


@pytest.fixture
def bad(tmp_path):
    """Write bytes where a bundle could lie."""

    def write(data):
        path = tmp_path / "bad.fala"
        path.write_bytes(data)
        return path

    return write
