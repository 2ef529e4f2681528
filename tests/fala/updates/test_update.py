"""An honest vendor's newer releases are installed once, and interrupted downloads resume."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import fala
from bundles import with_pattern, write_onnx_release, write_word_vector_release
from fala import Budget, Device, UpdateLimits
from fala_export.updates.keys import make_key
from fala_export.updates.signing import sign_file
from fala_sim.playground.releases import sample_release
from vendors import Vendor, target_in

LARGE = 500_000


@pytest.fixture(scope="module")
def large_vendor(tmp_path_factory):
    """Make a vendor who offers a release of half a megabyte."""
    folder = tmp_path_factory.mktemp("offering")
    words = (f"word{number}{'x' * 40}" for number in range(9_000))
    write_word_vector_release(folder / "large.fala", words=("<unk>", *words))
    assert (folder / "large.fala").stat().st_size > LARGE
    vendor = Vendor(folder / "vendor")
    vendor.publish(folder / "large.fala")
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
            report = device.update(server.address, root=vendor.root, budget=Budget(0))
            assert report.new == "model v2 (tiny encoder)"

    def test_a_second_update_and_a_rollback(self, updated, vendor, server, releases):
        vendor.publish(releases["new"])
        server.files = vendor.files()
        report = updated.update(f"{server.address}/", root=vendor.root.read_bytes())
        assert report.new == "model v2 (new)"
        updated.rollback()
        # A release that the user rolled back is skipped until the vendor publishes another.
        assert updated.update(server.address, root=vendor.root) is None
        assert updated.status().release == "model v1 (mid)"
        vendor.publish(releases["new"], republish=True)
        server.files = vendor.files()
        assert updated.update(server.address, root=vendor.root).new == "model v3 (new)"

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
        with pytest.raises(fala.WorseModelError):
            device.update(server.address, root=vendor.root, accept="better-than-old")
        assert device.status().release == "old"
        server.requests.clear()
        assert device.update(server.address, root=vendor.root).new == "model v1 (mid)"
        assert downloads(server) == []


def downloads(server):
    """Return the first byte that each request for a release asked for."""
    ranges = [header for path, header in server.requests if path.startswith("targets/")]
    return [0 if header is None else int(header[6:-1]) for header in ranges]


class TestConnections:
    def test_a_redirect_is_followed(self, client, vendor, server):
        head = b"HTTP/1.1 302 Found\r\nLocation: /moved.json\r\nConnection: close\r\n\r\n"
        server.files["moved.json"] = server.files.pop("metadata/timestamp.json")
        server.special["metadata/timestamp.json"] = lambda handler: handler.wfile.write(head)
        assert client.update(server.address, root=vendor.root) == "model v1"

    def test_a_proxy_is_used(self, client, vendor, server, monkeypatch):
        """A proxy is asked for whole addresses; the test server drops their first character."""
        monkeypatch.setenv("http_proxy", server.address.removeprefix("http://"))
        server.files = {f"ttp://fala.invalid/{name}": file for name, file in server.files.items()}
        assert client.update("http://fala.invalid", root=vendor.root) == "model v1"

    @pytest.mark.parametrize("variable", ["https_proxy", "HTTP_PROXY"])
    @pytest.mark.parametrize(
        "address",
        [
            "socks5://secret.invalid:1", "ftp://secret.invalid", "http://[::1", "http://secret:port",
            "secret.invalid:99999", "http://", "//secret.invalid", "http://secret .invalid:1",
            "http://.:1",
        ],
    )  # fmt: skip
    def test_a_proxy_that_cannot_be_used_is_named(
        self, client, vendor, monkeypatch, variable, address
    ):
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv(variable, address)
        scheme = variable.lower().partition("_")[0]
        with pytest.raises(fala.DownloadError, match=variable) as caught:
            client.update(f"{scheme}://fala.invalid", root=vendor.root)
        assert "secret" not in str(caught.value)


class TestInterrupted:
    """The downloaded part is kept; only the rest is downloaded."""

    @pytest.fixture
    def vendor(self, large_vendor):
        return large_vendor

    @pytest.fixture
    def part(self, client, server):
        """Return the file of a download that was begun."""
        (digest, *_) = target_in(server.files).split("/")[-1].split(".")
        (client.folder / "updates").mkdir()
        return client.folder / "updates" / f"{digest}.part"

    def test_a_broken_connection_resumes(self, client, vendor, server):
        server.cut_after = 150_000
        assert client.update(server.address, root=vendor.root) == "model v1"
        starts = downloads(server)
        assert starts[:3] == [0, 150_000, 300_000] and len(starts) > 3

    def test_a_closed_connection_is_opened_again(self, client, vendor, server):
        path = "metadata/2.targets.json"
        server.special[path] = lambda handler: server.special.pop(path)
        assert client.update(server.address, root=vendor.root) == "model v1"
        assert [name for name, _ in server.requests].count(path) == 2

    def test_without_ranges_the_download_starts_again(self, client, vendor, server):
        server.cut_after, server.ranges = 150_000, False
        with pytest.raises(fala.DownloadError, match="broke"):
            client.update(server.address, root=vendor.root)
        server.cut_after = None
        assert client.update(server.address, root=vendor.root) == "model v1"

    def test_a_wrong_range_is_rejected(self, client, vendor, server, part):
        path = target_in(server.files)
        part.write_bytes(server.files[path][:1000])
        head = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 7-9/10\r\n"
        server.special[path] = lambda handler: handler.wfile.write(
            head + b"Content-Length: 3\r\n\r\nabc"
        )
        with pytest.raises(fala.DownloadError, match="other bytes than those from 1000 on"):
            client.update(server.address, root=vendor.root)

    @pytest.mark.parametrize("error", [fala.CancelledError, KeyboardInterrupt])
    def test_a_cancelled_download_resumes(self, device, vendor, server, error):
        events = []

        def progress(stage, done, total):
            events.append((stage, done, total))
            if stage != "download" or done < 200_000:
                return True
            if error is KeyboardInterrupt:
                raise KeyboardInterrupt
            return False

        before = os.umask(0)
        try:
            with pytest.raises(error):
                device.update(server.address, root=vendor.root, progress=progress)
        finally:
            os.umask(before)
        updates = device._folder.path / "updates"
        for file in (updates, *updates.rglob("*")):
            assert file.lstat().st_mode & 0o077 == 0 or file.is_symlink(), file
        stage, done, total = events[-1]
        assert (stage, total) == ("download", len(server.files[target_in(server.files)]))
        assert device.status().release == "old"
        assert device.update(server.address, root=vendor.root).new == "model v1 (tiny vectors)"
        assert downloads(server) == [0, done]

    def test_a_damaged_part_is_downloaded_again(self, client, vendor, server, part):
        part.write_bytes(b"x" * 200_000)
        assert client.update(server.address, root=vendor.root) == "model v1"
        assert downloads(server) == [200_000, 0]

    def test_connections_of_one_byte_are_counted(self, client, vendor, server):
        """The number of connections is limited."""

        def send_one_byte(handler):
            start = int(handler.headers["Range"][6:-1]) if "Range" in handler.headers else 0
            head = f"Content-Range: bytes {start}-{LARGE}/{LARGE + 1}\r\nContent-Length: 400000"
            status = "206 Partial Content" if start else "200 OK"
            handler.wfile.write(f"HTTP/1.1 {status}\r\n{head}\r\n\r\nx".encode())

        server.special[target_in(server.files)] = send_one_byte
        with pytest.raises(fala.DownloadError, match="broke"):
            client.update(server.address, root=vendor.root)
        assert downloads(server) == [0, 1, 2, 3, 4]


def test_a_second_concurrent_update_is_rejected(device, vendor, server):
    started, finish = threading.Event(), threading.Event()

    def progress(stage, done, total):
        if stage == "download":
            started.set()
            finish.wait(20)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(device.update, server.address, root=vendor.root, progress=progress)
        try:
            assert started.wait(20)
            with pytest.raises(fala.UpdateError, match="another update is running"):
                device.update(server.address, root=vendor.root)
        finally:
            finish.set()
    assert first.result().new == "model v1 (mid)"


def test_a_full_disk_is_reported_before_the_download(client, vendor, server, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 3_000}))
    with pytest.raises(fala.DeviceError, match="3000 are free"):
        client.update(server.address, root=vendor.root)
    assert downloads(server) == []


def test_wrong_arguments_are_rejected(device, vendor, server, tmp_path):
    unsigned = tmp_path / "unsigned"
    root = json.loads(vendor.root.read_bytes())
    unsigned.write_text(json.dumps({**root, "signatures": []}))
    timestamp = vendor.root.with_name("timestamp.json")
    addresses = ("ftp://example.org/x", "file:///etc", "http://", "http://host:port/",
                 "http://host/a b", "http://host/?x", None)  # fmt: skip
    for error, match, name, *values in (
        (fala.DataError, "repository's address", "url", *addresses),
        (fala.DataError, "address, .* not a text of 19 ch", "url", "http://me:word@host"),
        (fala.DataError, "trusted root", "root", None),
        (fala.DataError, "no/such/file", "root", "no/such/file"),
        (fala.DataError, "root", "root", "a\0b"),
        (fala.DataError, "these bytes are not the root.json of", "root", b"{}", b"\xff" * 99),
        (fala.DataError, "is not the root.json of", "root", timestamp, unsigned),
        (fala.DataError, "glove.fala is not the root.json", "root", sample_release("glove")),
        (fala.DataError, "product must be a name", "product", "News", "../x", 3),
        (fala.UpdateError, "no release of this product", "product", "other"),
        (fala.BudgetError, "UpdateLimits", "limits", 5),
    ):
        for value in values:
            arguments = {"url": server.address, "root": vendor.root, name: value}
            with pytest.raises(error, match=match) as caught:
                device.update(arguments.pop("url"), **arguments)
            assert type(caught.value) is error
            # No other file than the root is blamed on the server.
            assert name != "root" or server.address not in str(caught.value)
    assert device.status().release == "old"


@pytest.mark.parametrize("value", [0, 1.5, True, float("nan"), float("inf")])
def test_wrong_limits_are_rejected(value):
    name = "attempts" if value in (0, 1.5) else "total_seconds"
    with pytest.raises(fala.BudgetError, match=name):
        UpdateLimits(**{name: value})


def test_an_unreachable_server_is_reported(client, vendor, server):
    address = server.address
    server.__exit__()
    with pytest.raises(fala.DownloadError, match="cannot be reached"):
        client.update(address, root=vendor.root)
