import signal

import pytest

from fala.backbones import OnnxEncoder

# A shell starts what runs in its background with Ctrl-C ignored, and children inherit that: tests
# that interrupt processes would wait for what cannot come.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def encoded(monkeypatch):
    """Every text that passes through a transformer."""
    seen = []
    real = OnnxEncoder.encode

    def encode(self, texts):
        seen.extend(texts)
        return real(self, texts)

    monkeypatch.setattr(OnnxEncoder, "encode", encode)
    return seen
