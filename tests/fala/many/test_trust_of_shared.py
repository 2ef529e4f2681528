"""Checks of a shared release count for those who would have made them, and for nobody else."""

import shutil

import pytest

pytest.importorskip("onnx")
pytest.importorskip("cryptography")

import bundles
import fala
from fala import Bundle, BundleError, BundleFormatError, Device, Releases
from fala.slots import release as loaded
from fala.slots import validation
from fala_export.updates.keys import make_key
from fala_export.updates.signing import sign_file

ONLY_SIGNED = "only a release that is signed by the key"


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """Forget what was validated and loaded; return a function that does so again.

    A validation costs little here: a regular expression reads short runs of characters.
    """
    monkeypatch.setattr(validation, "LONG_RUN", validation.SHORT_RUN)

    def forget():
        validation.VALIDATED.clear()
        monkeypatch.setattr(loaded, "_shared", loaded._Shared())

    forget()
    return forget


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write a release that every device accepts, and one that must be signed; sign both."""
    folder = tmp_path_factory.mktemp("releases")
    for name in ("vendor", "other"):
        make_key(folder / f"{name}.pem")
    plain = bundles.write_onnx_release(folder / "plain.fala").path
    first = bundles.write_onnx_release(folder / "first.fala", seed=9).path
    special = bundles.with_pattern(plain, folder / "special.fala", r"[a-z]+(?=ing)|\p{L}+|\S")
    for path in (plain, special):
        sign_file(path, folder / "vendor.pem")
    return {"plain": plain, "special": special, "first": first, "key": folder / "vendor.pub",
            "other key": folder / "other.pub", "private": folder / "other.pem"}  # fmt: skip


@pytest.fixture
def shared(tmp_path):
    return Releases(tmp_path / "shared")


def refused(shared, files, match=ONLY_SIGNED, **settings):
    """Check that the folder of releases refuses the special one."""
    with pytest.raises(BundleError, match=match):
        shared.add(files["special"], **settings)


def test_every_door_refuses_what_another_device_had_verified(tmp_path, files, shared):
    special, folder = files["special"], tmp_path / "refusing"
    Device.create(tmp_path / "a", special, trust=files["key"], releases=shared).close()
    with Device.create(folder, files["first"], releases=shared) as device:
        name = device.status().release
        for call in (
            lambda: Device.create(tmp_path / "refused", special, releases=shared),
            lambda: device.replace(special),
            lambda: device.preview(special),
            lambda: fala.replace_all([folder], special, releases=shared, workers=1),
        ):
            with pytest.raises(BundleError, match=ONLY_SIGNED):
                call()
        assert device.status().release == name and not (tmp_path / "refused").exists()


def test_who_verified_no_signature_inherits_no_checks_of_a_signed_one(
    tmp_path, files, shared, another_process
):
    key = files["key"]
    with Device.create(tmp_path / "a", files["special"], trust=key, releases=shared) as device:
        device.predict(["a good film"])
        refused(shared, files)  # in the same process, and with the same backbone loaded
    another_process()
    refused(shared, files)
    refused(shared, files, "signed by another key", trust=files["other key"])


def test_who_verified_the_same_signature_inherits_them(
    tmp_path, files, shared, another_process, monkeypatch
):
    Device.create(tmp_path / "a", files["special"], trust=files["key"], releases=shared).close()
    Device.create(tmp_path / "b", files["plain"], trust=files["key"], releases=shared).close()
    another_process()
    monkeypatch.delattr(validation, "validate_in_child")
    monkeypatch.delattr(validation, "check_edge_cases")
    Device.create(tmp_path / "c", files["special"], trust=files["key"], releases=shared).close()
    # It has nothing that must be signed: it was validated for everybody.
    Device.create(tmp_path / "d", files["plain"], releases=shared).close()


def test_who_verified_another_signature_inherits_them_too(tmp_path, files, shared, another_process):
    """A release by itself must be signed or not; each device verifies the signature by its key."""
    Device.create(tmp_path / "a", files["special"], trust=files["key"], releases=shared).close()
    another_process()
    again = tmp_path / "again.fala"
    shutil.copy(files["special"], again)
    with pytest.raises(BundleError, match="not signed"):
        shared.add(again, trust=files["other key"])
    sign_file(again, files["private"])
    digest = shared.add(again, trust=files["other key"]).digest
    assert [shared.knows(digest, signed=signed) for signed in (True, False)] == [True, False]


def test_replace_all_leaves_no_trust_in_the_process(tmp_path, files, shared):
    Device.create(tmp_path / "a", files["first"], releases=shared).close()
    done = fala.replace_all(
        [tmp_path / "a"], files["special"], trust=files["key"], releases=shared, workers=1
    )
    assert (done.replaced, done.failed) == (1, 0)
    refused(shared, files)
    refused(Releases(tmp_path / "others"), files)


def test_a_device_inherits_no_more_from_its_own_past(tmp_path, files):
    with Device.create(tmp_path / "a", files["first"]) as device:
        device.replace(files["special"], trust=files["key"])
        with pytest.raises(BundleFormatError, match=ONLY_SIGNED):
            device.replace(files["special"])


def test_a_file_without_a_record_is_checked(tmp_path, files, shared, another_process):
    """The file was put there, or it is a copy of what a device had installed."""
    Device.create(tmp_path / "a", files["special"], trust=files["key"]).close()
    another_process()
    Device.open(tmp_path / "a", releases=shared).close()
    digest = Bundle.open(files["special"]).digest
    assert list(shared) == [digest]
    refused(shared, files)
    for record in (
        "", "[]", "{", "3", "null", '{"checks": 1}', '{"checks": 0, "must_be_signed": false}',
        '{"checks": 1, "must_be_signed": 0}', '{"checks": 1, "must_be_signed": null}',
        "[" * 9_999,
    ):  # fmt: skip
        (shared.path / f"{digest}.json").write_text(record)
        refused(shared, files)


def test_a_record_goes_with_its_release(files, shared):
    shared.add(files["plain"])
    (digest,) = shared
    assert shared.knows(digest, signed=False) and shared.knows(digest, signed=True)
    shared.remove(digest)
    assert not shared.knows(digest, signed=False)
    assert not [*shared.path.glob("*.json")]
