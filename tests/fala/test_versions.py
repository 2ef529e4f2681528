"""Versions only rise, unless the app passes ``allow_older`` or rolls back."""

import pytest

from bundles import make_head, write_onnx_release, write_word_vector_release
from device_command import works
from devices import same, state
from fala import Bundle, BundleFormatError, Device, OlderReleaseError
from fala_export.bundle.writing import add_version


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Releases by product and version; ``plain`` has neither."""
    folder = tmp_path_factory.mktemp("versions")
    write_word_vector_release(folder / "plain.fala")
    write_onnx_release(folder / "encoder.fala", make_head(seed=5))
    for product in ("model", "news", None):
        for version in (1, 2, 3):
            source = folder / ("plain.fala" if version % 2 else "encoder.fala")
            path = folder / f"{product}-{version}.fala"
            add_version(path, Bundle.open(source), version, product)
    return folder


@pytest.fixture
def device(tmp_path, folder):
    with Device.create(tmp_path / "device", folder / "model-2.fala") as device:
        yield device


def rejects(device, path, match):
    before = state(device)
    with pytest.raises(OlderReleaseError, match=f"{path.name}.*{match}"):
        device.replace(path)
    assert same(state(device), before)


def test_wrong_versions_and_products_are_not_written(tmp_path, folder):
    plain = Bundle.open(folder / "plain.fala")
    for version, product in (
        (0, "a"), (1.5, "a"), (True, "a"), ("1", "a"), (10**16, "a"), (1, "A"), (1, ""),
        (1, "../a"), (1, "a" * 65), (1, 3),
    ):  # fmt: skip
        with pytest.raises(BundleFormatError, match=r"version|product"):
            add_version(tmp_path / "x.fala", plain, version, product)
    assert not (tmp_path / "x.fala").exists()


def test_an_older_release_is_rejected(device, folder):
    rejects(device, folder / "model-1.fala", "version 1.*has had version 2.*allow_older=True")
    device.replace(folder / "model-1.fala", allow_older=True)
    assert device.status().release == "model v1 (tiny vectors)"
    # The newest version is still the one compared with.
    rejects(device, folder / "model-1.fala", "has had version 2")
    device.replace(folder / "model-2.fala")


def test_a_rollback_keeps_the_newest_version(device, tmp_path, folder):
    report = device.replace(folder / "model-3.fala")
    names = "model v2 (tiny encoder)", "model v3 (tiny vectors)"
    assert (report.old, report.new) == names == (device.status().previous, device.status().release)
    assert works("rollback", tmp_path / "device").output == f"{names[1]} -> {names[0]}\n"
    status = device.status()
    assert (status.release, status.product, status.version) == (names[0], "model", 2)
    rejects(device, folder / "model-2.fala", "has had version 3")


def test_another_product_is_rejected(device, folder):
    rejects(device, folder / "news-3.fala", "a release of news, and this device has one of model")
    device.replace(folder / "news-1.fala", allow_older=True)
    device.replace(folder / "news-2.fala")
    device.replace(folder / "model-2.fala", allow_older=True)
    rejects(device, folder / "model-1.fala", "version 2 already")


def test_releases_without_a_version_are_installed(tmp_path, folder):
    with Device.create(tmp_path / "device", folder / "plain.fala") as device:
        device.replace(folder / "model-3.fala")
        device.replace(folder / "plain.fala")
        device.replace(folder / "None-1.fala")
        device.replace(folder / "None-2.fala")
        rejects(device, folder / "None-1.fala", "has had version 2")
