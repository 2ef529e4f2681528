import pytest

from bundles import write_word_vectors


@pytest.fixture(scope="session")
def released(tmp_path_factory):
    """A bundle of word vectors."""
    return write_word_vectors(tmp_path_factory.mktemp("fit") / "words.fala")


@pytest.fixture(scope="session")
def backbone(released):
    return released.backbone()
