import signal

import pytest

import checkout
from fala.backbones import OnnxEncoder

# A shell starts what runs in its background with Ctrl-C ignored, and children inherit that: tests
# that interrupt processes would wait for what cannot come.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Mark the tests that ask for real data, so that they can be run alone."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        functions = [item.function, *(one.func for several in fixtures for one in several)]
        if any(map(checkout.asks_for_real_data, functions)):
            item.add_marker("real_data")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    checkout.marks = {mark.name for mark in item.iter_markers()}


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
