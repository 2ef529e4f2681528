"""The files of releases lie in a device's folder."""

import pytest

from bundles import write_word_vector_release
from fala import Bundle, BundleDigestError
from fala.slots.installing import BUNDLES, COPIES


@pytest.fixture
def device(tmp_path):
    (tmp_path / "device" / BUNDLES).mkdir(parents=True)
    return tmp_path / "device"


@pytest.fixture
def release(tmp_path):
    write_word_vector_release(tmp_path / "a.fala")
    return tmp_path / "a.fala"


def test_a_held_bundle_is_installed_as_verified(device, release):
    packed = release.read_bytes()
    bundle = Bundle.open(release, hold=True)
    release.write_bytes(b"another file by now")
    installed = COPIES.install(bundle, device)
    assert installed == bundle == Bundle.open(installed.path)
    assert installed.path.read_bytes() == packed


def test_another_bundle_is_verified_at_installation(device, release):
    bundle = Bundle.open(release)
    packed = release.read_bytes()
    assert COPIES.install(bundle, device).path.read_bytes() == packed
    write_word_vector_release(release, seed=7)
    for file in (device / BUNDLES).iterdir():
        file.unlink()
    with pytest.raises(BundleDigestError, match="changed since"):
        COPIES.install(bundle, device)
    assert list((device / BUNDLES).iterdir()) == []
