import pytest

import bridged
from bundles import write_onnx_release, write_word_vector_release


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Arguments of a walk from tiny vectors to a tiny transformer."""
    folder = tmp_path_factory.mktemp("tiny")
    write_word_vector_release(folder / "old.fala")
    write_onnx_release(folder / "new.fala")
    return "--old", folder / "old.fala", "--new", folder / "new.fala"


@pytest.fixture(scope="module")
def unbridged(tmp_path_factory):
    """Releases of three ages without bridges."""
    return bridged.write_releases(tmp_path_factory.mktemp("unbridged"), bridges=False)
