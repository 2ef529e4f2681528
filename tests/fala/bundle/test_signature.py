"""One pinned key for single files: what it did not sign is not even looked into."""

import json
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bundles import make_head, repacked, write_onnx_release, write_word_vector_release
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.errors import (
    BundleDigestError,
    BundleFormatError,
    BundleSignatureError,
    DataError,
)
from fala_export.updates.keys import make_key
from fala_export.updates.signing import sign_file


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_key(folder / "vendor.pem")
    make_key(folder / "other.pem")
    return folder


@pytest.fixture
def signed(tmp_path, keys):
    path = tmp_path / "x.fala"
    write_word_vector_release(path)
    sign_file(path, keys / "vendor.pem")
    return path


def forms(keys):
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    pem = (keys / "vendor.pub").read_bytes()
    raw = load_pem_public_key(pem).public_bytes(Encoding.Raw, PublicFormat.Raw)
    (keys / "raw.pub").write_bytes(raw)
    return [pem, pem.decode(), raw, keys / "vendor.pub", str(keys / "vendor.pub"), keys / "raw.pub"]


def refused(tmp_path, path, trust, match, error=BundleSignatureError):
    with pytest.raises(error, match=match) as caught:
        Device.create(tmp_path / "device", path, trust=trust)
    assert type(caught.value) is error
    assert not (tmp_path / "device").exists()
    return caught.value


def test_every_form_of_the_key(tmp_path, signed, keys):
    for number, trust in enumerate(forms(keys)):
        with Device.create(tmp_path / str(number), signed, trust=trust) as device:
            assert device.name == "tiny vectors"
            device.replace(signed, trust=trust)


def test_the_signature_leaves_the_bundle_as_it_is(signed):
    assert Bundle.open(signed).digest == write_word_vector_release(signed).digest
    assert set(json.loads((signed.parent / "x.fala.sig").read_bytes())) == {
        "format", "key", "signature",
    }  # fmt: skip


def another_key(path, keys):
    sign_file(path, keys / "other.pem")


def another_key_that_claims_to_be_the_vendors(path, keys):
    signature = path.with_name("x.fala.sig")
    theirs = json.loads(signature.read_bytes())
    sign_file(path, keys / "other.pem")
    forged = json.loads(signature.read_bytes())
    signature.write_text(json.dumps({**forged, "key": theirs["key"]}))


def another_bundle(path, keys):
    """Whole, with digests that fit; nothing but the signature shows it."""
    write_word_vector_release(path, make_head(seed=9))


def a_manifest_with_more_in_it(path, keys):
    """Fields that this SDK does not read are signed, too: a later one may read them."""
    path.write_bytes(repacked(path, more="x"))
    assert Bundle.open(path)


def a_file_that_changed(path, keys):
    data = bytearray(path.read_bytes())
    data[data.index(b"<unk>")] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "match", "error"),
    [
        (another_key, "signed by another key", BundleSignatureError),
        (another_key_that_claims_to_be_the_vendors, "not of this bundle", BundleSignatureError),
        (another_bundle, "not of this bundle", BundleSignatureError),
        (a_manifest_with_more_in_it, "not of this bundle", BundleSignatureError),
        (a_file_that_changed, "SHA-256", BundleDigestError),
        (lambda path, _: path.write_bytes(b"no zip" * 10), "not a bundle", BundleFormatError),
    ],
)
def test_what_the_vendor_did_not_sign(tmp_path, signed, keys, change, match, error):
    change(signed, keys)
    refused(tmp_path, signed, keys / "vendor.pub", match, error)


@pytest.mark.parametrize(
    "content", [None, b"", b"[]", b"3", b"\xff", b"[" * 9_000, b'{"format": 1}',
                b'{"format": 1, "key": 3, "signature": 4}',
                b'{"format": 1, "key": "zz", "signature": "00"}',
                b'{"format": 1, "key": "00", "signature": "00"}',
                b'{"format": 2, "key": "00", "signature": "00"}'],
    ids=range(11),
)  # fmt: skip
def test_no_signature(tmp_path, signed, keys, content):
    signature, match = signed.with_name("x.fala.sig"), "is no signature|of format 2"
    if content is None:
        signature.unlink()
        match = "not signed: x.fala.sig"
    else:
        signature.write_bytes(content)
    assert str(signed) in str(refused(tmp_path, signed, keys / "vendor.pub", match))


def test_a_bundle_that_changes_while_it_is_read(tmp_path, signed, keys, monkeypatch):
    from fala.slots import bundles as slots

    check = slots.check_signature

    def late(path, trust):
        manifest = check(path, trust)
        write_word_vector_release(signed, make_head(seed=9))
        return manifest

    monkeypatch.setattr(slots, "check_signature", late)
    refused(tmp_path, signed, keys / "vendor.pub", "changed while it was read")


def test_no_key(tmp_path, signed, keys):
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = curve.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private = (keys / "vendor.pem").read_bytes()
    for trust in (3, b"", b"x" * 31, "no/such.pub", "a\0b", pem, private, object()):
        refused(tmp_path, signed, trust, "trust", DataError)


def test_a_replacement(tmp_path, signed, keys):
    new = tmp_path / "new.fala"
    write_onnx_release(new)
    with Device.create(tmp_path / "device", signed, trust=keys / "vendor.pub") as device:
        with pytest.raises(BundleSignatureError, match="not signed"):
            device.replace(new, trust=keys / "vendor.pub")
        assert device.name == "tiny vectors"
        sign_file(new, keys / "vendor.pem")
        assert device.replace(new, trust=keys / "vendor.pub").new == "tiny encoder"


def test_without_the_extra(tmp_path, signed, keys):
    """The digests are verified all the same; a signature cannot be, and what is missing is said."""
    code = """
import sys
class Guard:
    def find_spec(self, name, path=None, target=None):
        if name in {"cryptography", "tuf", "securesystemslib", "filelock", "urllib3"}:
            raise ImportError(f"no module named {name}")
sys.meta_path.insert(0, Guard())
import fala
folder, bundle, key = sys.argv[1:]
with fala.Device.create(folder, bundle) as device:
    for call in (
        lambda: device.replace(bundle, trust=key),
        lambda: device.update("http://localhost", root=b"{}"),
    ):
        try:
            call()
        except fala.MissingExtraError as error:
            print(error)
    print(device.replace(bundle).new)
"""
    command = [sys.executable, "-c", code, tmp_path / "device", signed, keys / "vendor.pub"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, second, name = done.stdout.splitlines()
    assert "fala-sdk[ota]" in first
    assert "fala-sdk[ota]" in second
    assert name == "tiny vectors"
