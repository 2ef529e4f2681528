import pytest


@pytest.fixture(scope="module", autouse=True)
def one_round():
    """Time every export once, in place of seven times: here nobody reads how fast it is."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fala_export.graph.parity._ROUNDS", 1)
        yield
