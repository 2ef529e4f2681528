"""A release that was trained with hard prompts, and a device whose labels a prompt predicts."""

import shutil

import pytest

from adapter_releases import TEXTS
from fala import Budget, Device
from prompt_releases import KNOWN, labels_behind, write_compiling


@pytest.fixture(scope="package")
def release(tmp_path_factory):
    return write_compiling(tmp_path_factory.mktemp("compiling") / "x.fala")


@pytest.fixture(scope="package")
def labels(release):
    return labels_behind(release)


@pytest.fixture(scope="package")
def learned(tmp_path_factory, release, labels):
    folder = tmp_path_factory.mktemp("learned") / "device"
    with Device.create(folder, release.path) as device:
        device.learn(TEXTS[:KNOWN], labels[:KNOWN])
    return folder


@pytest.fixture(scope="package")
def prompt_trial(tmp_path_factory, learned):
    """That device with a prompt of the user's texts: p before and after it, and its report."""
    folder = shutil.copytree(learned, tmp_path_factory.mktemp("taken") / "device")
    with Device.open(folder) as device:
        before = device.predict_proba(TEXTS)
        report = device.refine(Budget(200), prompts="auto").prompt
        return folder, before, device.predict_proba(TEXTS), report


@pytest.fixture
def folder(path):
    return path


@pytest.fixture
def compiled(tmp_path, prompt_trial):
    return shutil.copytree(prompt_trial[0], tmp_path / "compiled")
