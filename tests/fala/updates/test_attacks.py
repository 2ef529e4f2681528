"""Attacks on an update run against a real server, and are rejected."""

import gc

import pytest

import fala
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
from vendors import Sender, Vendor, target_in

pytestmark = pytest.mark.slow


HASTY = UpdateLimits(silent_seconds=0.3, total_seconds=0.4)


@pytest.fixture
def vendor(tmp_path, twice):
    return twice.copy(tmp_path / "vendor")


def rejects(client, vendor, server, error, match, **options):
    """Check that an update raises exactly this error, which names the repository."""
    with pytest.raises(error, match=match) as caught:
        client.update(server.address, root=vendor.root, **options)
    assert type(caught.value) is error
    assert isinstance(caught.value, fala.UpdateError)
    assert server.address in str(caught.value)


def assert_updates(client, vendor, server):
    """Check that the same device updates from the honest files."""
    server.files, server.special = vendor.files(), {}
    assert client.update(server.address, root=vendor.root) == "model v2"


def path_of(server, name):
    """Return the path of a metadata file, or of the release that was added last."""
    if name != "release":
        return f"metadata/{name}.json"
    return target_in(server.files.keys() - server.before.keys())


# A device


def test_a_rejected_update_changes_nothing(updated, begun, vendor, server):
    """The installed version is kept in the store, not only in the metadata."""
    before, folder = state(updated), updated._folder.path
    installed = {file: file.read_bytes() for file in (folder / "bundles").iterdir()}
    server.before = begun.files()
    path = path_of(server, "release")
    whole = len(server.files[path])
    # The first download does not prevent the second.
    for length, error, match in (
        (whole // 2, DownloadError, "ended after|returns 416"),
        (whole, UntrustedUpdateError, "not what the vendor signed"),
    ):
        server.files[path] = bytes(length)
        rejects(updated, vendor, server, error, match)
    assert same(state(updated), before)
    assert {file: file.read_bytes() for file in (folder / "bundles").iterdir()} == installed
    server.files = vendor.files()
    assert updated.update(server.address, root=vendor.root).new == "model v2 (new)"
    before = state(updated)
    for file in (folder / "updates" / "metadata").glob("*.json"):
        file.unlink()
    server.files = server.before
    assert updated.update(server.address, root=vendor.root) is None
    assert same(state(updated), before)


# Other software


@pytest.mark.parametrize(
    ("role", "kept"), [("timestamp", "root"), ("root", "nothing")], ids=["but its root", "all"]
)
def test_forged_metadata_are_rejected(outdated, vendor, server, tmp_path, releases, role, kept):
    """An attacker signs all of a repository, or all but its root."""
    attacker = Vendor(tmp_path / "attacker")
    for _ in range(3):
        attacker.publish(releases["new"], republish=True)
    attacker.rotate("root")
    roots = {name: data for name, data in server.files.items() if kept in name}
    forged = {name: data for name, data in attacker.files().items() if kept not in name}
    server.files = forged | roots
    rejects(outdated, vendor, server, UntrustedUpdateError, f"{role} was signed by 0/1 keys")
    assert_updates(outdated, vendor, server)


@pytest.fixture
def no_collection():
    """Run no finalizer, which would fail where a parser has reached the end of the stack."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("name", ["2.root", "timestamp", "3.snapshot", "3.targets"])
def test_any_bytes_as_metadata_are_rejected(outdated, vendor, server, name):
    for data in (
        b"", b"html>", b"[" * 100_000, b"\xff\xfe", b'{"signed": {}, "signatures": []}',
        b'{"signed": 3}', b"null", b'{"signatures": [{}], "signed": {"_type": "root"}}',
    ):  # fmt: skip
        server.files[path_of(server, name)] = data
        with pytest.raises((UntrustedUpdateError, DownloadError)):
            outdated.update(server.address, root=vendor.root)
    assert_updates(outdated, vendor, server)


# Rollback and freeze


def test_old_metadata_are_rejected(outdated, vendor, server):
    assert_updates(outdated, vendor, server)
    server.files = server.before
    rejects(outdated, vendor, server, RolledBackError, "timestamp version")


@pytest.mark.parametrize(
    ("role", "days", "renewed"),
    [("timestamp", 8, ()), ("snapshot", 31, ("timestamp",)),
     ("targets", 366, ("root", "snapshot", "timestamp")), ("root", 366, ("targets",))],
)  # fmt: skip
def test_expired_metadata_are_rejected(client, tmp_path, releases, role, days, renewed):
    """Metadata that an attacker holds back are rejected once they expire."""
    past = Vendor(tmp_path / "past", days=-days)
    past.publish(releases["mid"])
    past.days = 0
    if renewed:
        past.renew(*renewed)
    with FileServer(past.files()) as server:
        rejects(client, past, server, ExpiredUpdateError, f"{role}.*is expired|New {role}")
        past.renew(role)
        server.files = past.files()
        assert client.update(server.address, root=past.root) == "model v1"


# Endless data and slow retrieval


@pytest.mark.parametrize(
    ("name", "how", "limits", "error", "match"),
    [
        *(
            (name, "endless", None, DownloadError, "exceeding|longer than")
            for name in ("timestamp", "2.root", "3.targets", "release")
        ),
        # From 3.14 on Python itself ends after a hundred interim responses.
        ("timestamp", "endless_headers", UpdateLimits(metadata_bytes=500_000), DownloadError,
         "has no end|interim responses"),
        ("release", "endless_marks", UpdateLimits(metadata_bytes=500_000), DownloadError,
         "has no end"),
        ("timestamp", "trickling_headers", HASTY, SlowDownloadError, "too slow"),
        ("timestamp", "silent", HASTY, SlowDownloadError, "too slow"),
        ("release", "trickling", HASTY, SlowDownloadError, "too slow"),
    ],
)  # fmt: skip
def test_an_answer_without_an_end_is_rejected(
    outdated, vendor, server, name, how, limits, error, match
):
    sender = Sender()
    server.special[path_of(server, name)] = getattr(sender, how)
    rejects(outdated, vendor, server, error, match, limits=limits)
    # Beyond the limit only the buffers of the two sockets are filled.
    most = 20_000 if name == "timestamp" else 600_000
    assert sender.sent < most + 9_000_000
    parts = (outdated.folder / "updates").glob("*.part")
    assert sum(file.stat().st_size for file in parts) <= most
    assert_updates(outdated, vendor, server)


def test_a_release_above_the_limit_is_rejected(outdated, vendor, server):
    limits = UpdateLimits(release_bytes=1_000)
    rejects(outdated, vendor, server, DownloadError, "the limit of 1000", limits=limits)


# Other targets, and servers


def test_targets_that_are_no_release_of_the_product_are_rejected(outdated, vendor, server):
    """They are signed, and lie under this product's path."""
    undeclared = "not declared as a release"
    for custom, match in (
        ({"product": "news", "version": 9}, undeclared),
        ({"product": "model", "version": 9}, "its manifest names version 2 of model"),
        (None, undeclared),
        ({"product": "model", "version": True}, undeclared),
        ({"product": "model", "version": 10**30}, undeclared),
    ):  # fmt: skip
        vendor.publish_as("model", custom)
        server.files = vendor.files()
        rejects(outdated, vendor, server, UntrustedUpdateError, match)


@pytest.mark.parametrize(
    "answer", [b"500 ", b"200 fine\r\nLocation: ", b"302 \r\nLocation: http://"]
)
def test_errors_contain_no_terminal_escapes(client, vendor, server, answer):
    def send_escapes(request):
        request.wfile.write(b"HTTP/1.1 " + answer + b"\x1b[31mred\x07\xe2\x80\xae\r\n\r\n{\x1b[31m")

    for path in server.files:
        server.special[path] = send_escapes
    with pytest.raises(fala.UpdateError) as caught:
        client.update(server.address, root=vendor.root)
    assert str(caught.value).isprintable() and str(caught.value).startswith(server.address)
