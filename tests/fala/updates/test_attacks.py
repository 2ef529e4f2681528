"""What others do to an update: each attack is mounted against a real server, and refused."""

import gc

import pytest
from tuf.api.metadata import Metadata

import fala
from bundles import write_word_vector_release
from device_setups import files_of
from devices import same, state
from fala.errors import (
    DownloadError,
    ExpiredUpdateError,
    RolledBackError,
    SlowDownloadError,
    UntrustedUpdateError,
)
from fala.updates.limits import UpdateLimits
from fala_export.updates.state import sign
from file_server import FileServer
from vendors import Sender, Vendor

pytestmark = pytest.mark.slow


HASTY = UpdateLimits(silent_seconds=0.3, total_seconds=0.4)


@pytest.fixture
def vendor(tmp_path, twice):
    return twice.copy(tmp_path / "vendor")


@pytest.fixture
def offered(updated, begun, server):
    """The device with version 1, and version 2 on the server."""
    server.before = begun.files()
    return updated


def refuses(device, vendor, server, error, match, **options):
    """An update raises exactly this error, and nothing has changed."""
    before, installed = state(device), files_of(device._installed.path)
    with pytest.raises(error, match=match) as caught:
        device.update(server.address, root=vendor.root, **options)
    assert type(caught.value) is error
    assert isinstance(caught.value, fala.UpdateError)
    assert server.address in str(caught.value)
    assert same(state(device), before)
    assert files_of(device._installed.path) == installed


def goes_on(device, vendor, server):
    """With the honest files the same device updates."""
    server.files, server.special = vendor.files(), {}
    assert device.update(server.address, root=vendor.root).new == "new"


def newest_target(files, before):
    """The release that was added last."""
    (path,) = [path for path in files if path.startswith("targets/") and path not in before]
    return path


class TestArbitrarySoftware:
    def test_another_bundle_in_place_of_the_release(self, offered, vendor, server, tmp_path):
        path = newest_target(server.files, server.before)
        write_word_vector_release(tmp_path / "evil.fala")
        evil = (tmp_path / "evil.fala").read_bytes()
        length = len(server.files[path])
        assert len(evil) < length
        server.files[path] = evil
        refuses(offered, vendor, server, DownloadError, "ended after|returns 416")
        # What came of it does not stand in the way.
        server.files[path] = evil + bytes(length - len(evil))
        refuses(offered, vendor, server, UntrustedUpdateError, "not what the vendor signed")
        goes_on(offered, vendor, server)

    def test_a_longer_release(self, offered, vendor, server):
        path = newest_target(server.files, server.before)
        server.files[path] += b"x"
        refuses(offered, vendor, server, DownloadError, "longer than")
        goes_on(offered, vendor, server)

    def test_metadata_signed_by_others(self, offered, vendor, server, tmp_path, releases):
        """All of a repository but its root, by an attacker."""
        attacker = Vendor(tmp_path / "attacker")
        for _ in range(3):
            attacker.publish(releases["new"])
        forged = attacker.files()
        roots = {name: data for name, data in server.files.items() if "root" in name}
        server.files = {**forged, **roots}
        refuses(offered, vendor, server, UntrustedUpdateError, "timestamp was signed by 0/1 keys")
        goes_on(offered, vendor, server)

    @pytest.fixture
    def no_collection(self):
        """No finalizer runs, and fails, where a parser has reached the end of the stack."""
        gc.collect()
        gc.disable()
        yield
        gc.enable()

    @pytest.mark.usefixtures("no_collection")
    @pytest.mark.parametrize("name", ["2.root", "timestamp", "3.snapshot", "3.targets"])
    def test_any_bytes(self, offered, vendor, server, name):
        for data in (
            b"", b"<html>", b"[" * 100_000, b"\xff\xfe", b'{"signed": {}, "signatures": []}',
            b'{"signed": 3}', b"null", b'{"signatures": [{}], "signed": {"_type": "root"}}',
        ):  # fmt: skip
            server.files[f"metadata/{name}.json"] = data
            with pytest.raises((UntrustedUpdateError, DownloadError)):
                offered.update(server.address, root=vendor.root)
        assert offered.name == "mid"
        goes_on(offered, vendor, server)


class TestRollback:
    def test_old_metadata(self, offered, vendor, server, releases):
        goes_on(offered, vendor, server)
        server.files = server.before
        refuses(offered, vendor, server, RolledBackError, "timestamp version")

    def test_a_device_that_forgot_the_metadata(self, offered, vendor, server):
        """The version of what was installed is kept apart from them, with the slots."""
        goes_on(offered, vendor, server)
        before = state(offered)
        forget_metadata(offered)
        server.files = server.before
        assert offered.update(server.address, root=vendor.root) is None
        assert same(state(offered), before)

    def test_an_older_release_in_new_metadata(self, offered, vendor, server):
        """The vendor's own hand, or the key of the targets in another's."""
        goes_on(offered, vendor, server)
        before = state(offered)
        state_of = vendor.state()
        old = Metadata.from_bytes(server.before["metadata/2.targets.json"]).signed.targets
        state_of.targets["targets"].signed.targets = old
        made = sign(state_of, ["targets"], vendor.ring, vendor.now)
        for role, data in made.items():
            version = "" if role == "timestamp" else f"{state_of[role].signed.version}."
            server.files[f"metadata/{version}{role}.json"] = data
        assert offered.update(server.address, root=vendor.root) is None
        assert same(state(offered), before)


class TestFreeze:
    @pytest.mark.parametrize(
        ("role", "days", "renewed"),
        [("timestamp", 8, ()), ("snapshot", 31, ("timestamp",)),
         ("targets", 366, ("root", "snapshot", "timestamp")), ("root", 366, ("targets",))],
    )  # fmt: skip
    def test_metadata_that_expired(self, device, tmp_path, releases, role, days, renewed):
        """Whoever holds one role's newer metadata back is noticed when its period is over."""
        past = Vendor(tmp_path / "past", days=-days)
        past.publish(releases["mid"])
        past.days = 0
        if renewed:
            past.renew(*renewed)
        with FileServer(past.files()) as server:
            refuses(device, past, server, ExpiredUpdateError, f"{role}.*is expired|New {role}")
            past.renew(role)
            server.files = past.files()
            assert device.update(server.address, root=past.root).new == "mid"


class TestMixAndMatch:
    @pytest.mark.parametrize("role", ["snapshot", "targets"])
    def test_files_of_two_moments(self, offered, vendor, server, role):
        server.files[f"metadata/3.{role}.json"] = server.before[f"metadata/2.{role}.json"]
        refuses(offered, vendor, server, UntrustedUpdateError, "not what the vendor signed")
        goes_on(offered, vendor, server)


class TestEndlessData:
    @pytest.mark.parametrize(
        ("name", "most"),
        [("timestamp", 20_000), ("2.root", 600_000), ("3.targets", 600_000), ("", 600_000)],
    )
    def test_each_file(self, offered, vendor, server, name, most):
        sender = Sender()
        path = f"metadata/{name}.json" if name else newest_target(server.files, server.before)
        server.special[path] = sender.endless
        refuses(offered, vendor, server, DownloadError, "exceeding|longer than")
        # Beyond what was taken lies what the two sockets hold.
        assert sender.sent < most + 8_000_000
        taken = sum(file.stat().st_size for file in parts(offered))
        assert taken <= most
        goes_on(offered, vendor, server)

    @pytest.mark.parametrize(
        ("name", "how"), [("timestamp", "endless_headers"), ("", "endless_marks")]
    )
    def test_around_the_content(self, offered, vendor, server, name, how):
        sender = Sender()
        path = f"metadata/{name}.json" if name else newest_target(server.files, server.before)
        server.special[path] = getattr(sender, how)
        limits = UpdateLimits(metadata_bytes=500_000)
        # From 3.14 on Python itself ends after a hundred interim responses.
        ended = "without an end|interim responses"
        refuses(offered, vendor, server, DownloadError, ended, limits=limits)
        assert sender.sent < 10_000_000
        goes_on(offered, vendor, server)

    def test_a_release_that_is_larger_than_is_taken(self, offered, vendor, server):
        limits = UpdateLimits(release_bytes=1_000)
        refuses(offered, vendor, server, DownloadError, "the limit is 1000", limits=limits)
        goes_on(offered, vendor, server)


class TestSlowRetrieval:
    @pytest.mark.parametrize(
        ("name", "how"),
        [("timestamp", "trickling_headers"), ("timestamp", "silent"), ("", "trickling")],
    )
    def test_each_way(self, offered, vendor, server, name, how):
        path = f"metadata/{name}.json" if name else newest_target(server.files, server.before)
        server.special[path] = getattr(Sender(), how)
        refuses(offered, vendor, server, SlowDownloadError, "too slow", limits=HASTY)
        goes_on(offered, vendor, server)


class TestExtraneousDependencies:
    def test_a_product_signs_for_itself_alone(self, offered, vendor, server, releases):
        """The key of another product cannot put a release in this one's place."""
        vendor.delegate("news")
        state_of = vendor.state()
        news, top = (state_of.targets[role].signed for role in ("news", "targets"))
        news.targets = {path: top.targets.pop(path) for path in list(top.targets)}
        made = sign(state_of, ["news", "targets"], vendor.ring, vendor.now)
        server.files = vendor.files()
        for role, data in made.items():
            version = "" if role == "timestamp" else f"{state_of[role].signed.version}."
            server.files[f"metadata/{version}{role}.json"] = data
        refuses(offered, vendor, server, fala.UpdateError, "no release of model")

    def test_another_products_release(self, offered, vendor, server):
        """Signed, and in this product's place; neither told to be it, nor calling itself so."""
        vendor.publish_as("model", {"product": "news", "version": 9})
        server.files = vendor.files()
        refuses(offered, vendor, server, UntrustedUpdateError, "not declared as a release")
        vendor.publish_as("model", {"product": "model", "version": 9})
        server.files = vendor.files()
        refuses(
            offered, vendor, server, UntrustedUpdateError, "its manifest is of version 2 of model"
        )

    def test_targets_that_are_no_releases(self, offered, vendor, server):
        for told in (
            None, [], {}, {"product": "model", "version": "9"},
            {"product": "model", "version": True}, {"product": "model", "version": 10**30},
        ):  # fmt: skip
            vendor.publish_as("model", told)
            server.files = vendor.files()
            refuses(offered, vendor, server, UntrustedUpdateError, "not declared as a release")

    def test_what_was_not_asked_for_is_not_downloaded(self, offered, vendor, server, releases):
        vendor.publish(releases["new"], product="news")
        server.files = vendor.files()
        assert offered.update(server.address, root=vendor.root).new == "new"
        assert not [path for path, _ in server.requests if "news" in path]


class TestKeys:
    def test_another_repository(self, offered, vendor, server, tmp_path, releases):
        attacker = Vendor(tmp_path / "attacker")
        attacker.publish(releases["new"])
        attacker.rotate("root")
        server.files = attacker.files()
        refuses(offered, vendor, server, UntrustedUpdateError, "root was signed by 0/1 keys")
        goes_on(offered, vendor, server)

    def test_keys_that_were_taken_back(self, offered, vendor, server, releases):
        """A root that a device has seen holds, whatever older keys sign later."""
        stolen = vendor.copy(vendor.folder.parent.with_name("stolen"))
        vendor.rotate("targets")
        vendor.rotate("snapshot")
        goes_on(offered, vendor, server)
        for _ in range(3):
            stolen.publish(releases["mid"])
        server.files = {**stolen.files(), **{
            name: data for name, data in vendor.files().items() if "root" in name
        }}  # fmt: skip
        refuses(offered, vendor, server, UntrustedUpdateError, "signed by 0/1 keys")


class TestServers:
    @pytest.mark.parametrize("status", ["500 Broken", "301 Moved\r\nLocation: file:///etc/passwd",
                                        "302 Found\r\nLocation: /metadata/timestamp.json",
                                        "204 Nothing"])  # fmt: skip
    def test_other_answers(self, offered, vendor, server, status):
        head = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()
        server.special["metadata/timestamp.json"] = lambda handler: handler.wfile.write(head)
        with pytest.raises((DownloadError, UntrustedUpdateError)):
            offered.update(server.address, root=vendor.root)
        assert offered.name == "mid"
        goes_on(offered, vendor, server)

    def test_no_http(self, offered, vendor, server):
        server.special["metadata/timestamp.json"] = lambda handler: handler.wfile.write(
            b"SSH-2\r\n"
        )
        refuses(offered, vendor, server, DownloadError, "broken response")


def parts(device):
    return list((device._installed.path / "updates").glob("*.part"))


def forget_metadata(device):
    for file in (device._installed.path / "updates" / "metadata").glob("*.json"):
        file.unlink()


@pytest.mark.parametrize(
    "answer", [b"500 ", b"200 fine\r\nLocation: ", b"302 \r\nLocation: http://"]
)
def test_a_server_cannot_speak_to_the_terminal(device, vendor, server, answer):
    def escapes(request):
        request.wfile.write(b"HTTP/1.1 " + answer + b"\x1b[31mred\x07\xe2\x80\xae\r\n\r\n{\x1b[31m")

    for path in server.files:
        server.special[path] = escapes
    with pytest.raises(fala.UpdateError) as caught:
        device.update(server.address, root=vendor.root)
    assert str(caught.value).isprintable() and str(caught.value).startswith(server.address)
