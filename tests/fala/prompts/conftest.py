"""A release with writers' prompts, and a device whose labels one of them tells."""

import shutil

import pytest

from adaptable import TEXTS
from fala import Budget, Device
from promptable import telling_labels, write_prompted

#: Labels that the device knows; the other texts are there to be learned.
KNOWN = 60


@pytest.fixture(scope="package")
def release(tmp_path_factory):
    return write_prompted(tmp_path_factory.mktemp("releases") / "prompted.fala").path


@pytest.fixture(scope="package")
def labels(release):
    return telling_labels(release)


@pytest.fixture(scope="package")
def learned(tmp_path_factory, release, labels):
    folder = tmp_path_factory.mktemp("learned") / "device"
    with Device.create(folder, release) as device:
        device.learn(TEXTS[:KNOWN], labels[:KNOWN])
    return folder


@pytest.fixture(scope="package")
def taken(tmp_path_factory, learned):
    """The same after a mixture of prompts was taken; with what it answered, and was told."""
    folder = shutil.copytree(learned, tmp_path_factory.mktemp("taken") / "device")
    with Device.open(folder) as device:
        before = device.predict(TEXTS)
        report = device.refine(Budget(200), prompts="auto")
        return folder, before, device.predict(TEXTS), report


@pytest.fixture
def folder(path):
    return path


@pytest.fixture
def prompted(tmp_path, taken):
    return shutil.copytree(taken[0], tmp_path / "prompted")
