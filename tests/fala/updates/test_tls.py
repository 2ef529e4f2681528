"""Updates run over TLS, with a trusted certificate only."""

import ssl
import time
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fala import DownloadError, SlowDownloadError
from fala.updates import fetcher
from file_server import FileServer
from vendors import Sender


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Write a self-signed certificate of the loopback, and its key, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(timezone.utc)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(signed.public_bytes(Encoding.PEM) + private)
    return path


@pytest.fixture
def encrypted(certificate, vendor):
    with FileServer(vendor.files(), certificate=certificate) as server:
        assert server.address.startswith("https://")
        yield server


def test_a_trusted_certificate_is_accepted(client, vendor, encrypted, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert ssl.get_default_verify_paths().cafile == str(certificate)
    assert client.update(encrypted.address, root=vendor.root) == "model v1"
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 100_000)

    def trickle(handler):
        monkeypatch.setattr(fetcher, "time", later)
        Sender().trickling(handler)

    encrypted.special["metadata/timestamp.json"] = trickle
    with pytest.raises(SlowDownloadError, match="too slow"):
        client.update(encrypted.address, root=vendor.root)


def test_an_untrusted_certificate_is_rejected(client, vendor, encrypted):
    with pytest.raises(DownloadError, match="certificate"):
        client.update(encrypted.address, root=vendor.root)
