"""The files of releases lie in a device's folder."""

import pytest

from bundles import write_word_vector_release
from fala import Bundle, BundleDigestError
from fala.slots.installing import BUNDLES, COPIES


@pytest.mark.parametrize("hold", [True, False])
def test_a_bundle_is_installed_as_verified(tmp_path, hold):
    release = write_word_vector_release(tmp_path / "a.fala").path
    packed, bundle = release.read_bytes(), Bundle.open(release, hold=hold)
    installed = COPIES.install(bundle, device_in(tmp_path / "first"))
    assert installed == bundle == Bundle.open(installed.path)
    assert installed.path.read_bytes() == packed
    write_word_vector_release(release, seed=7)
    folder = device_in(tmp_path / "second")
    if hold:
        assert COPIES.install(bundle, folder).path.read_bytes() == packed
    else:
        with pytest.raises(BundleDigestError, match="changed since"):
            COPIES.install(bundle, folder)
        assert list((folder / BUNDLES).iterdir()) == []


def device_in(folder):
    (folder / BUNDLES).mkdir(parents=True)
    return folder
