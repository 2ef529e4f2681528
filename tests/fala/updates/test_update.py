"""An honest vendor's newer releases are installed once, and interrupted downloads resume."""

import json
import os
import threading

import numpy as np
import pytest

import fala
from bridged import PROBES
from bundles import with_pattern, write_onnx_release, write_word_vector_release
from devices import same, state
from fala import Budget, Device, UpdateLimits
from fala_export.updates.keys import make_key
from fala_export.updates.signing import sign_file
from fala_sim.playground.releases import sample_release
from vendors import Vendor, target_in

LARGE = 500_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Write a release of half a megabyte."""
    path = tmp_path_factory.mktemp("large") / "large.fala"
    words = (f"word{number}{'x' * 40}" for number in range(9_000))
    write_word_vector_release(path, words=("<unk>", *words))
    assert path.stat().st_size > LARGE
    return path


@pytest.fixture(scope="module")
def large_vendor(tmp_path_factory, large):
    """Make a vendor who offers the large release."""
    vendor = Vendor(tmp_path_factory.mktemp("offering") / "vendor")
    vendor.publish(large)
    return vendor


class TestVersions:
    def test_a_repositorys_releases_need_no_other_signature(
        self, tmp_path, releases, vendor, server
    ):
        """The repository's keys sign an update as trust= signs a file."""
        make_key(tmp_path / "key.pem")
        release = tmp_path / "old.fala"
        release.write_bytes(releases["old"].read_bytes())
        sign_file(release, tmp_path / "key.pem")
        write_onnx_release(tmp_path / "x.fala")
        special = with_pattern(tmp_path / "x.fala", tmp_path / "y.fala", r"\p{L}+(?!ing)|\S")
        vendor.publish(special)
        server.files = vendor.files()
        with Device.create(tmp_path / "signed", release, trust=tmp_path / "key.pub") as device:
            with pytest.raises(fala.BundleSignatureError, match="not signed"):
                device.replace(special, Budget(0))
            report = device.update(server.address, root=vendor.root, budget=Budget(0))
            assert report.new == "model v2 (tiny encoder)"

    def test_a_second_update_and_a_rollback(self, updated, vendor, server, releases):
        vendor.publish(releases["new"])
        server.files = vendor.files()
        report = updated.update(f"{server.address}/", root=vendor.root.read_bytes())
        assert report.new == "model v2 (new)"
        updated.rollback()
        assert updated.status().release == "model v1 (mid)"
        # A release that the user rolled back is skipped until the vendor publishes another.
        assert updated.update(server.address, root=vendor.root) is None
        assert updated.status().release == "model v1 (mid)"
        vendor.publish(releases["new"], republish=True)
        server.files = vendor.files()
        assert updated.update(server.address, root=vendor.root).new == "model v3 (new)"

    def test_metadata_survive_a_restart(self, path, vendor, server):
        for expected in ("model v1 (mid)", None):
            with Device.open(path) as device:
                report = device.update(server.address, root=vendor.root)
            assert (report and report.new) == expected
            downloads = [path for path, _ in server.requests if path.startswith("targets/")]
            assert len(downloads) == 1  # nothing is newer the second time
        assert (path / "updates" / "metadata" / "timestamp.json").is_file()
        assert list((path / "updates").glob("*.part")) == []

    def test_products_do_not_mix(self, updated, vendor, server, releases):
        vendor.delegate("news")
        vendor.publish(releases["new"], product="news")
        server.files = vendor.files()
        assert updated.update(server.address, root=vendor.root) is None
        report = updated.update(server.address, root=vendor.root, product="news")
        assert report.new == "news v1 (new)"
        # The device is of that product now.
        assert updated.update(server.address, root=vendor.root) is None
        vendor.publish(releases["mid"], product="news", republish=True)
        server.files = vendor.files()
        assert updated.update(server.address, root=vendor.root).new == "news v2 (mid)"

    def test_a_worse_release_is_rejected(self, device, vendor, server, monkeypatch):
        """The rejected release stays on the disk; it is not downloaded twice."""

        def refuse(*_, **__):
            raise fala.WorseModelError("worse", 0.4, 0.5)

        monkeypatch.setattr("fala.personal.replace.refuse_worse", refuse)
        before = state(device)
        with pytest.raises(fala.WorseModelError):
            device.update(server.address, root=vendor.root, accept="better-than-old")
        assert same(state(device), before)
        server.requests.clear()
        assert device.update(server.address, root=vendor.root).new == "model v1 (mid)"
        assert not [path for path, _ in server.requests if path.startswith("targets/")]


class TestConnections:
    def test_a_redirect_is_followed(self, device, vendor, server):
        head = b"HTTP/1.1 302 Found\r\nLocation: /moved.json\r\nConnection: close\r\n\r\n"
        server.files["moved.json"] = server.files.pop("metadata/timestamp.json")
        server.special["metadata/timestamp.json"] = lambda handler: handler.wfile.write(head)
        assert device.update(server.address, root=vendor.root).new == "model v1 (mid)"

    def test_a_proxy_is_used(self, device, vendor, server, monkeypatch):
        """A proxy is asked for whole addresses; the test server drops their first character."""
        monkeypatch.setenv("http_proxy", server.address.removeprefix("http://"))
        server.files = {f"ttp://fala.invalid/{name}": file for name, file in server.files.items()}
        assert device.update("http://fala.invalid", root=vendor.root).new == "model v1 (mid)"

    @pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"])
    @pytest.mark.parametrize(
        "address",
        [
            "socks5://secret.invalid:1", "ftp://secret.invalid", "http://[::1", "http://secret:port",
            "secret.invalid:99999", "http://", "//secret.invalid", "http://secret .invalid:1",
            "http://.:1",
        ],
    )  # fmt: skip
    def test_a_proxy_that_cannot_be_used_is_named(
        self, device, vendor, monkeypatch, variable, address
    ):
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv(variable, address)
        scheme = variable.lower().partition("_")[0]
        with pytest.raises(fala.DownloadError, match=variable) as caught:
            device.update(f"{scheme}://fala.invalid", root=vendor.root)
        assert "secret" not in str(caught.value)


class TestInterrupted:
    """The downloaded part is kept; only the rest is downloaded."""

    @pytest.fixture
    def vendor(self, large_vendor):
        return large_vendor

    def starts(self, server):
        ranges = [header for path, header in server.requests if path.startswith("targets/")]
        return [0 if header is None else int(header[6:-1]) for header in ranges]

    def test_a_broken_connection_resumes(self, device, vendor, server):
        server.cut_after = 150_000
        assert device.update(server.address, root=vendor.root).new == "model v1 (tiny vectors)"
        starts = self.starts(server)
        assert starts[:3] == [0, 150_000, 300_000]
        assert len(starts) > 3

    def test_a_closed_connection_is_opened_again(self, device, vendor, server):
        path = "metadata/2.targets.json"
        server.special[path] = lambda handler: server.special.pop(path)
        assert device.update(server.address, root=vendor.root).new == "model v1 (tiny vectors)"
        assert [name for name, _ in server.requests].count(path) == 2

    def test_without_ranges_the_download_starts_again(self, device, vendor, server):
        server.cut_after, server.ranges = 150_000, False
        with pytest.raises(fala.DownloadError, match="broke"):
            device.update(server.address, root=vendor.root)
        assert device.status().release == "old"
        server.cut_after = None
        assert device.update(server.address, root=vendor.root).new == "model v1 (tiny vectors)"

    def test_a_wrong_range_is_rejected(self, device, vendor, server):
        path = target_in(server.files)
        (device._folder.path / "updates").mkdir()
        part = device._folder.path / "updates" / f"{path.split('/')[-1].split('.')[0]}.part"
        part.write_bytes(server.files[path][:1000])

        def wrong_range(handler):
            handler.wfile.write(
                b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 7-9/10\r\n"
                b"Content-Length: 3\r\n\r\nabc"
            )

        server.special[path] = wrong_range
        with pytest.raises(fala.DownloadError, match="other bytes than those from 1000 on"):
            device.update(server.address, root=vendor.root)

    def test_a_cancelled_download_resumes(self, device, vendor, server):
        events = []

        def progress(stage, done, total):
            events.append((stage, done, total))
            return stage != "download" or done < 200_000

        before = os.umask(0)
        try:
            with pytest.raises(fala.CancelledError):
                device.update(server.address, root=vendor.root, progress=progress)
        finally:
            os.umask(before)
        updates = device._folder.path / "updates"
        for file in (updates, *updates.rglob("*")):
            assert file.lstat().st_mode & 0o077 == 0 or file.is_symlink(), file
        size = len(server.files[target_in(server.files)])
        assert events[-1][0] == "download"
        assert events[-1][2] == size
        assert device.status().release == "old"
        assert device.update(server.address, root=vendor.root).new == "model v1 (tiny vectors)"
        assert self.starts(server) == [0, events[-1][1]]

    def test_a_damaged_part_is_downloaded_again(self, device, vendor, server):
        path = target_in(server.files)
        part = device._folder.path / "updates" / f"{path.split('/')[-1].split('.')[0]}.part"
        part.parent.mkdir()
        part.write_bytes(b"x" * 200_000)
        assert device.update(server.address, root=vendor.root).new == "model v1 (tiny vectors)"
        assert self.starts(server) == [200_000, 0]

    def test_connections_of_one_byte_are_counted(self, device, vendor, server):
        """The number of connections is limited."""
        path = target_in(server.files)
        offsets = []

        def send_one_byte(handler):
            start = int(handler.headers["Range"][6:-1]) if "Range" in handler.headers else 0
            offsets.append(start)
            head = f"Content-Range: bytes {start}-{LARGE}/{LARGE + 1}\r\nContent-Length: 400000"
            status = "206 Partial Content" if start else "200 OK"
            handler.wfile.write(f"HTTP/1.1 {status}\r\n{head}\r\n\r\nx".encode())

        server.special[path] = send_one_byte
        with pytest.raises(fala.DownloadError, match="broke"):
            device.update(server.address, root=vendor.root)
        assert offsets == [0, 1, 2, 3, 4]


def test_a_second_concurrent_update_is_rejected(device, vendor, server):
    started, finish, reports = threading.Event(), threading.Event(), []

    def progress(stage, done, total):
        if stage == "download":
            started.set()
            finish.wait(20)

    def update():
        reports.append(device.update(server.address, root=vendor.root, progress=progress))

    thread = threading.Thread(target=update)
    thread.start()
    try:
        assert started.wait(20)
        with pytest.raises(fala.UpdateError, match="another update is running"):
            device.update(server.address, root=vendor.root)
    finally:
        finish.set()
        thread.join()
    assert reports[0].new == "model v1 (mid)"
    assert device.update(server.address, root=vendor.root) is None


def test_a_full_disk_is_reported_before_the_download(device, vendor, server, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 3_000}))
    with pytest.raises(fala.DeviceError, match="3000 are free"):
        device.update(server.address, root=vendor.root)
    assert not [path for path, _ in server.requests if path.startswith("targets/")]


ARGUMENTS = [
    ({"url": "ftp://example.org/x"}, fala.DataError, "repository's address"),
    ({"url": "file:///etc"}, fala.DataError, "repository's address"),
    ({"url": "http://"}, fala.DataError, "repository's address"),
    ({"url": "http://host:port/"}, fala.DataError, "repository's address"),
    ({"url": "http://host/a b"}, fala.DataError, "repository's address"),
    ({"url": "http://host/?x"}, fala.DataError, "repository's address"),
    ({"url": None}, fala.DataError, "repository's address"),
    (
        {"url": "http://me:word@host"},
        fala.DataError,
        "repository's address, .* not a text of 19 ch",
    ),
    ({"root": None}, fala.DataError, "trusted root"),
    ({"root": "no/such/file"}, fala.DataError, "no/such/file"),
    ({"root": "a\0b"}, fala.DataError, "root"),
    ({"root": b"{}"}, fala.DataError, "these bytes are not the root.json of a repository"),
    ({"root": b"\xff" * 99}, fala.DataError, "these bytes are not the root.json of a repository"),
    ({"root": sample_release("glove")}, fala.DataError, "glove.fala is not the root.json"),
    ({"product": "News"}, fala.DataError, "product must be a name"),
    ({"product": "../x"}, fala.DataError, "product must be a name"),
    ({"product": 3}, fala.DataError, "product must be a name"),
    ({"product": "other"}, fala.UpdateError, "no release of this product"),
    ({"accept": "on"}, fala.DataError, '"better-than-vendor", not a text of 2 characters'),
    ({"budget": 5}, fala.BudgetError, "Budget"),
    ({"limits": 5}, fala.BudgetError, "UpdateLimits"),
    ({"progress": 5}, fala.DataError, "progress"),
]


@pytest.mark.parametrize("name", ["timestamp.json", "unsigned"])
def test_another_file_than_the_root_is_not_blamed_on_the_server(device, vendor, tmp_path, name):
    file = vendor.root.parent / name
    if name == "unsigned":
        root = json.loads(vendor.root.read_bytes())
        file = tmp_path / name
        file.write_text(json.dumps({**root, "signatures": []}))
    with pytest.raises(
        fala.DataError, match=f"{name} is not the root.json of a repository"
    ) as caught:
        device.update("http://fala.invalid", root=file)
    assert "fala.invalid" not in str(caught.value)


def test_wrong_arguments_are_rejected(device, vendor, server):
    for arguments, error, match in ARGUMENTS:
        options = {"url": server.address, "root": vendor.root, **arguments}
        url = options.pop("url")
        with pytest.raises(error, match=match) as caught:
            device.update(url, **options)
        assert type(caught.value) is error
        assert device.status().release == "old"
    assert device.update(server.address, root=vendor.root).new == "model v1 (mid)"


@pytest.mark.parametrize(
    "limits", [{"attempts": 0}, {"silent_seconds": float("nan")}, {"attempts": 1.5},
               {"silent_seconds": True}, {"total_seconds": float("inf")}],
)  # fmt: skip
def test_wrong_limits_are_rejected(limits):
    with pytest.raises(fala.BudgetError, match=next(iter(limits))):
        UpdateLimits(**limits)


def test_an_unreachable_server_is_reported(device, vendor, server):
    address = server.address
    server.__exit__()
    with pytest.raises(fala.DownloadError, match="cannot be reached"):
        device.update(address, root=vendor.root)
    assert np.isfinite(device.predict_proba(PROBES)).all()
