"""Versions only rise: an older release needs ``rollback`` or ``allow_older``."""

import pytest

from bundles import make_head, write_onnx_release, write_word_vector_release
from devices import same, state
from fala.base.errors import BundleFormatError, OlderReleaseError
from fala.bundle.reading import Bundle
from fala.device import Device
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
    with pytest.raises(OlderReleaseError, match=match) as caught:
        device.replace(path)
    assert str(path) in str(caught.value)
    assert same(state(device), before)


def test_a_manifest_has_product_and_version(folder):
    manifest = Bundle.open(folder / "news-2.fala").manifest
    assert (manifest.product, manifest.version) == ("news", 2)
    plain = Bundle.open(folder / "plain.fala")
    assert (plain.manifest.product, plain.manifest.version) == (None, None)
    assert plain.backbone_digest == Bundle.open(folder / "news-1.fala").backbone_digest


@pytest.mark.parametrize(
    ("version", "product"),
    [(0, "a"), (-1, "a"), (1.5, "a"), (True, "a"), ("1", "a"), (10**16, "a"), (1, "A"), (1, ""),
     (1, "../a"), (1, "a" * 65), (1, 3)],
)  # fmt: skip
def test_wrong_versions_are_rejected(tmp_path, folder, version, product):
    with pytest.raises(BundleFormatError, match=r"version|product"):
        add_version(tmp_path / "x.fala", Bundle.open(folder / "plain.fala"), version, product)
    assert not (tmp_path / "x.fala").exists()


def test_an_older_release_is_rejected(device, folder):
    rejects(device, folder / "model-1.fala", "version 1.*has had version 2.*allow_older=True")
    device.replace(folder / "model-1.fala", allow_older=True)
    assert device.status().release == "model v1 (tiny vectors)"
    # The newest version is still the one compared with.
    rejects(device, folder / "model-1.fala", "has had version 2")
    device.replace(folder / "model-2.fala")


def test_a_rollback_keeps_the_newest_version(device, folder):
    device.replace(folder / "model-3.fala")
    device.rollback()
    rejects(device, folder / "model-2.fala", "has had version 3")
    device.replace(folder / "model-3.fala")


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
