import fala


def test_every_public_name_is_there_and_documented():
    """Names of types alone (``Example``, ``Progress``) carry none in Python."""
    aliases = {"Example", "Progress"}
    for name in fala.__all__:
        assert name in aliases or getattr(fala, name).__doc__


def test_every_error_is_a_fala_error():
    errors = [getattr(fala, name) for name in fala.__all__ if name.endswith("Error")]
    assert all(issubclass(error, fala.FalaError) for error in errors)
