"""One pinned key signs single files: a bundle without its signature is not read further."""

import json
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

import fala
from bundles import make_head, repacked, write_onnx_release, write_word_vector_release
from fala import Bundle, Device
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


def refused(tmp_path, path, trust, match, error=fala.BundleSignatureError):
    with pytest.raises(error, match=match) as caught:
        Device.create(tmp_path / "device", path, trust=trust)
    assert type(caught.value) is error
    assert not (tmp_path / "device").exists()


def test_every_form_of_the_key_is_accepted(tmp_path, signed, keys):
    file = keys / "vendor.pub"
    pem = file.read_bytes()
    raw = load_pem_public_key(pem).public_bytes(Encoding.Raw, PublicFormat.Raw)
    (keys / "raw.pub").write_bytes(raw)
    for number, trust in enumerate([pem, pem.decode(), raw, file, str(file), keys / "raw.pub"]):
        with Device.create(tmp_path / str(number), signed, trust=trust) as device:
            assert device.status().release == "tiny vectors"


def test_signing_does_not_change_the_bundle(signed):
    assert Bundle.open(signed).digest == write_word_vector_release(signed).digest
    signature = json.loads(signed.with_name("x.fala.sig").read_bytes())
    assert set(signature) == {"format", "key", "signature"}


def another_key_under_its_name(path, keys):
    signature = path.with_name("x.fala.sig")
    name = json.loads(signature.read_bytes())["key"]
    sign_file(path, keys / "other.pem")
    forged = json.loads(signature.read_bytes())
    signature.write_text(json.dumps({**forged, "key": name}))


@pytest.mark.parametrize(
    ("change", "match", "error"),
    [
        (lambda path, keys: sign_file(path, keys / "other.pem"), "signed by another key",
         fala.BundleSignatureError),
        (another_key_under_its_name, "not of this bundle", fala.BundleSignatureError),
        # A valid bundle with right digests: only the signature is wrong.
        (lambda path, _: write_word_vector_release(path, make_head(seed=9)), "not of this bundle",
         fala.BundleSignatureError),
        # Fields that this SDK does not read are signed, too: a later one may read them.
        (lambda path, _: path.write_bytes(repacked(path, more="x")), "not of this bundle",
         fala.BundleSignatureError),
        (lambda path, _: path.write_bytes(path.read_bytes().replace(b"<unk>", b"<unl>")),
         "SHA-256", fala.BundleDigestError),
        (lambda path, _: path.with_name("x.fala.sig").unlink(), "x.fala: .*not signed: x.fala.sig",
         fala.BundleSignatureError),
        *(
            (lambda path, _, wrong=wrong: path.with_name("x.fala.sig").write_bytes(wrong),
             "x.fala: .*(is not a signature|of format 2)", fala.BundleSignatureError)
            for wrong in (
                b"", b"[]", b"3", b"\xff", b"[" * 9_000, b'{"format": 1}',
                b'{"format": 1, "key": 3, "signature": 4}',
                b'{"format": 1, "key": "zz", "signature": "00"}',
                b'{"format": 1, "key": "00", "signature": "00"}',
                b'{"format": 2, "key": "00", "signature": "00"}',
            )
        ),
    ],
    ids=range(16),
)  # fmt: skip
def test_other_bundles_and_signatures_are_rejected(tmp_path, signed, keys, change, match, error):
    change(signed, keys)
    refused(tmp_path, signed, keys / "vendor.pub", match, error)


def test_a_bundle_that_changes_during_reading_is_rejected(tmp_path, signed, keys, monkeypatch):
    from fala.slots import admit as slots

    check = slots.check_signature

    def late(path, trust):
        manifest = check(path, trust)
        write_word_vector_release(signed, make_head(seed=9))
        return manifest

    monkeypatch.setattr(slots, "check_signature", late)
    refused(tmp_path, signed, keys / "vendor.pub", "changed while it was read")


def test_wrong_keys_are_rejected(tmp_path, signed, keys):
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = curve.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private = (keys / "vendor.pem").read_bytes()
    for trust in (3, b"", b"x" * 31, "no/such.pub", "a\0b", pem, private, object()):
        refused(tmp_path, signed, trust, "trust", fala.DataError)


def test_the_key_of_the_creation_is_required_from_then_on(tmp_path, signed, keys):
    """A later call that forgets the key installs nothing that is unsigned."""
    folder, new, other = tmp_path / "device", tmp_path / "new.fala", tmp_path / "other.fala"
    write_onnx_release(new)
    write_onnx_release(other)
    sign_file(other, keys / "other.pem")
    Device.create(folder, signed, trust=keys / "vendor.pub").close()
    (keys / "vendor.pub").rename(keys / "moved.pub")  # the device has the key itself
    with Device.open(folder) as device:
        for call in (device.replace, device.preview, device.load_adapter):
            with pytest.raises(fala.BundleSignatureError, match="not signed"):
                call(new)
        with pytest.raises(fala.BundleSignatureError, match="signed by another key"):
            device.replace(other)
        assert device.status().release == "tiny vectors"
        assert device.replace(other, trust=keys / "other.pub").new == "tiny encoder"  # another key
        sign_file(new, keys / "vendor.pem")
        assert device.replace(new).new == "tiny encoder"
    (keys / "moved.pub").rename(keys / "vendor.pub")


def test_verifying_needs_the_extra(tmp_path, signed, keys, monkeypatch):
    """The digests are verified without the extra; a signature cannot be."""
    for name in ("cryptography.exceptions", "tuf.ngclient", "urllib3"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "fala.updates.client", raising=False)
    with Device.create(tmp_path / "device", signed) as device:
        with pytest.raises(fala.MissingExtraError, match=r"pip install .*\[ota\]"):
            device.replace(signed, trust=keys / "vendor.pub")
        with pytest.raises(fala.MissingExtraError, match=r"pip install .*\[ota\]"):
            device.update("http://localhost", root=b"{}")
        assert device.replace(signed).new == "tiny vectors"
