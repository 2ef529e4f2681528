import os
import signal

import pytest

import checkout
import traces
from fala.backbones import OnnxEncoder
from fala.slots.validation import EDGE_CASES

# Hundreds of tiny releases are installed: their first load is here, but where that is tested.
os.environ.setdefault("FALA_NO_CHILD_PROCESS", "1")

# A shell starts what runs in its background with Ctrl-C ignored, and children inherit that: tests
# that interrupt processes would wait for what cannot come.
signal.signal(signal.SIGINT, signal.default_int_handler)


#: What a slow test uses: processes, kills, faults. A module that trains, exports whole models, asks
#: a browser or lets devices live through many replacements has the mark itself.
SLOW = {
    "subprocess", "Popen", "multiprocessing", "fork", "run_apart", "PowerCuts", "fala_power_cuts",
    "fala_failing_disk",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Mark tests by what they use: real data, or what is slow."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs
        functions = frozenset(one.func for several in fixtures.values() for one in several)
        used = checkout.names_used(functions | {item.function}) | set(fixtures)
        if checkout.real_data.__name__ in used:
            item.add_marker("real_data")
        if used & SLOW or item.get_closest_marker("thorough"):
            item.add_marker("slow")


def pytest_make_parametrize_id(val, argname):
    """Name a test by the argument where that is bytes, in which a compressor may store the time.

    Two workers whose tests have other names refuse to run.
    """
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    checkout.marks = {mark.name for mark in item.iter_markers()}


@pytest.fixture(scope="session", autouse=True)
def folder_of_traces(tmp_path_factory):
    """The folder of the traces of this run, of all its workers."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "traces"
    os.environ[traces.FOLDER] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def shared_traces(folder_of_traces):
    """Share the traces of this run where a test's module has loaded the exporter."""
    traces.share(folder_of_traces)


@pytest.fixture
def encoded(monkeypatch):
    """Every text that passes through a transformer, but the odd ones that prove a release."""
    seen = []
    real = OnnxEncoder.encode

    def encode(self, texts):
        if list(texts) not in (list(EDGE_CASES), *([text] for text in EDGE_CASES)):
            seen.extend(texts)
        return real(self, texts)

    monkeypatch.setattr(OnnxEncoder, "encode", encode)
    return seen
