"""Attacks on an update run against a real server, and are rejected."""

import gc

import pytest

import fala
from bundles import write_word_vector_release
from device_setups import files_of
from devices import same, state
from fala.base.errors import (
    DownloadError,
    ExpiredUpdateError,
    RolledBackError,
    SlowDownloadError,
    UntrustedUpdateError,
)
from fala.updates.limits import UpdateLimits
from file_server import FileServer
from vendors import Sender, Vendor

pytestmark = pytest.mark.slow


HASTY = UpdateLimits(silent_seconds=0.3, total_seconds=0.4)


@pytest.fixture
def vendor(tmp_path, twice):
    return twice.copy(tmp_path / "vendor")


@pytest.fixture
def outdated(updated, begun, server):
    """Return the device with version 1, while version 2 is on the server."""
    server.before = begun.files()
    return updated


def rejects(device, vendor, server, error, match, **options):
    """Check that an update raises exactly this error, and that nothing has changed."""
    before, installed = state(device), files_of(device._folder.path)
    with pytest.raises(error, match=match) as caught:
        device.update(server.address, root=vendor.root, **options)
    assert type(caught.value) is error
    assert isinstance(caught.value, fala.UpdateError)
    assert server.address in str(caught.value)
    assert same(state(device), before)
    assert files_of(device._folder.path) == installed


def assert_updates(device, vendor, server):
    """Check that the same device updates from the honest files."""
    server.files, server.special = vendor.files(), {}
    assert device.update(server.address, root=vendor.root).new == "model v2 (new)"


def newest_target(files, before):
    """Return the release that was added last."""
    (path,) = [path for path in files if path.startswith("targets/") and path not in before]
    return path


class TestArbitrarySoftware:
    def test_a_replaced_release_file_is_rejected(self, outdated, vendor, server, tmp_path):
        path = newest_target(server.files, server.before)
        write_word_vector_release(tmp_path / "evil.fala")
        bundle = (tmp_path / "evil.fala").read_bytes()
        length = len(server.files[path])
        assert len(bundle) < length
        server.files[path] = bundle
        rejects(outdated, vendor, server, DownloadError, "ended after|returns 416")
        # The first download does not prevent the second.
        server.files[path] = bundle + bytes(length - len(bundle))
        rejects(outdated, vendor, server, UntrustedUpdateError, "not what the vendor signed")
        assert_updates(outdated, vendor, server)

    def test_forged_metadata_are_rejected(self, outdated, vendor, server, tmp_path, releases):
        """An attacker signs all of a repository but its root."""
        attacker = Vendor(tmp_path / "attacker")
        for _ in range(3):
            attacker.publish(releases["new"], republish=True)
        forged = attacker.files()
        roots = {name: data for name, data in server.files.items() if "root" in name}
        server.files = {**forged, **roots}
        rejects(outdated, vendor, server, UntrustedUpdateError, "timestamp was signed by 0/1 keys")
        assert_updates(outdated, vendor, server)

    @pytest.fixture
    def no_collection(self):
        """Run no finalizer, which would fail where a parser has reached the end of the stack."""
        gc.collect()
        gc.disable()
        yield
        gc.enable()

    @pytest.mark.usefixtures("no_collection")
    @pytest.mark.parametrize("name", ["2.root", "timestamp", "3.snapshot", "3.targets"])
    def test_any_bytes_as_metadata_are_rejected(self, outdated, vendor, server, name):
        for data in (
            b"", b"html>", b"[" * 100_000, b"\xff\xfe", b'{"signed": {}, "signatures": []}',
            b'{"signed": 3}', b"null", b'{"signatures": [{}], "signed": {"_type": "root"}}',
        ):  # fmt: skip
            server.files[f"metadata/{name}.json"] = data
            with pytest.raises((UntrustedUpdateError, DownloadError)):
                outdated.update(server.address, root=vendor.root)
        assert outdated.status().release == "model v1 (mid)"
        assert_updates(outdated, vendor, server)


class TestRollback:
    def test_old_metadata_are_rejected(self, outdated, vendor, server, releases):
        assert_updates(outdated, vendor, server)
        server.files = server.before
        rejects(outdated, vendor, server, RolledBackError, "timestamp version")

    def test_a_device_without_metadata_rejects_older_releases(self, outdated, vendor, server):
        """The installed version is kept in the store, not only in the metadata."""
        assert_updates(outdated, vendor, server)
        before = state(outdated)
        forget_metadata(outdated)
        server.files = server.before
        assert outdated.update(server.address, root=vendor.root) is None
        assert same(state(outdated), before)


class TestFreeze:
    @pytest.mark.parametrize(
        ("role", "days", "renewed"),
        [("timestamp", 8, ()), ("snapshot", 31, ("timestamp",)),
         ("targets", 366, ("root", "snapshot", "timestamp")), ("root", 366, ("targets",))],
    )  # fmt: skip
    def test_expired_metadata_are_rejected(self, device, tmp_path, releases, role, days, renewed):
        """Metadata that an attacker holds back are rejected once they expire."""
        past = Vendor(tmp_path / "past", days=-days)
        past.publish(releases["mid"])
        past.days = 0
        if renewed:
            past.renew(*renewed)
        with FileServer(past.files()) as server:
            rejects(device, past, server, ExpiredUpdateError, f"{role}.*is expired|New {role}")
            past.renew(role)
            server.files = past.files()
            assert device.update(server.address, root=past.root).new == "model v1 (mid)"


class TestEndlessData:
    @pytest.mark.parametrize(
        ("name", "most"),
        [("timestamp", 20_000), ("2.root", 600_000), ("3.targets", 600_000), ("", 600_000)],
    )
    def test_an_endless_file_is_rejected(self, outdated, vendor, server, name, most):
        sender = Sender()
        path = f"metadata/{name}.json" if name else newest_target(server.files, server.before)
        server.special[path] = sender.endless
        rejects(outdated, vendor, server, DownloadError, "exceeding|longer than")
        # Beyond the limit only the buffers of the two sockets are filled.
        assert sender.sent < most + 8_000_000
        size = sum(file.stat().st_size for file in parts(outdated))
        assert size <= most
        assert_updates(outdated, vendor, server)

    @pytest.mark.parametrize(
        ("name", "how"), [("timestamp", "endless_headers"), ("", "endless_marks")]
    )
    def test_endless_headers_are_rejected(self, outdated, vendor, server, name, how):
        sender = Sender()
        path = f"metadata/{name}.json" if name else newest_target(server.files, server.before)
        server.special[path] = getattr(sender, how)
        limits = UpdateLimits(metadata_bytes=500_000)
        # From 3.14 on Python itself ends after a hundred interim responses.
        ended = "has no end|interim responses"
        rejects(outdated, vendor, server, DownloadError, ended, limits=limits)
        assert sender.sent < 10_000_000
        assert_updates(outdated, vendor, server)

    def test_a_release_above_the_limit_is_rejected(self, outdated, vendor, server):
        limits = UpdateLimits(release_bytes=1_000)
        rejects(outdated, vendor, server, DownloadError, "the limit of 1000", limits=limits)
        assert_updates(outdated, vendor, server)


class TestSlowRetrieval:
    @pytest.mark.parametrize(
        ("name", "how"),
        [("timestamp", "trickling_headers"), ("timestamp", "silent"), ("", "trickling")],
    )
    def test_a_slow_server_is_rejected(self, outdated, vendor, server, name, how):
        path = f"metadata/{name}.json" if name else newest_target(server.files, server.before)
        server.special[path] = getattr(Sender(), how)
        rejects(outdated, vendor, server, SlowDownloadError, "too slow", limits=HASTY)
        assert_updates(outdated, vendor, server)


class TestExtraneousDependencies:
    def test_a_release_of_another_product_is_rejected(self, outdated, vendor, server):
        """The release of another product is signed, and lies under this product's path."""
        vendor.publish_as("model", {"product": "news", "version": 9})
        server.files = vendor.files()
        rejects(outdated, vendor, server, UntrustedUpdateError, "not declared as a release")
        vendor.publish_as("model", {"product": "model", "version": 9})
        server.files = vendor.files()
        rejects(
            outdated, vendor, server, UntrustedUpdateError, "its manifest names version 2 of model"
        )

    def test_other_targets_are_rejected(self, outdated, vendor, server):
        for custom in (
            None, [], {}, {"product": "model", "version": "9"},
            {"product": "model", "version": True}, {"product": "model", "version": 10**30},
        ):  # fmt: skip
            vendor.publish_as("model", custom)
            server.files = vendor.files()
            rejects(outdated, vendor, server, UntrustedUpdateError, "not declared as a release")


class TestKeys:
    def test_another_repository_is_rejected(self, outdated, vendor, server, tmp_path, releases):
        attacker = Vendor(tmp_path / "attacker")
        attacker.publish(releases["new"], republish=True)
        attacker.rotate("root")
        server.files = attacker.files()
        rejects(outdated, vendor, server, UntrustedUpdateError, "root was signed by 0/1 keys")
        assert_updates(outdated, vendor, server)


class TestServers:
    @pytest.mark.parametrize("status", ["500 Broken", "301 Moved\r\nLocation: file:///etc/passwd",
                                        "302 Found\r\nLocation: /metadata/timestamp.json",
                                        "204 Nothing"])  # fmt: skip
    def test_unexpected_http_responses_are_rejected(self, outdated, vendor, server, status):
        head = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()
        server.special["metadata/timestamp.json"] = lambda handler: handler.wfile.write(head)
        with pytest.raises((DownloadError, UntrustedUpdateError)):
            outdated.update(server.address, root=vendor.root)
        assert outdated.status().release == "model v1 (mid)"
        assert_updates(outdated, vendor, server)


def parts(device):
    return list((device._folder.path / "updates").glob("*.part"))


def forget_metadata(device):
    for file in (device._folder.path / "updates" / "metadata").glob("*.json"):
        file.unlink()


@pytest.mark.parametrize(
    "answer", [b"500 ", b"200 fine\r\nLocation: ", b"302 \r\nLocation: http://"]
)
def test_errors_contain_no_terminal_escapes(device, vendor, server, answer):
    def send_escapes(request):
        request.wfile.write(b"HTTP/1.1 " + answer + b"\x1b[31mred\x07\xe2\x80\xae\r\n\r\n{\x1b[31m")

    for path in server.files:
        server.special[path] = send_escapes
    with pytest.raises(fala.UpdateError) as caught:
        device.update(server.address, root=vendor.root)
    assert str(caught.value).isprintable() and str(caught.value).startswith(server.address)
