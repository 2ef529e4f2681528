"""Ordinary web servers send pages for missing files, and some compress what must not be."""

import gzip

import pytest

from fala.base.errors import DownloadError, UntrustedUpdateError
from vendors import target_in

pytestmark = pytest.mark.slow

PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html><title>Home</title><p>Welcome" + b"." * 3_000
NEXT_ROOT = "metadata/2.root.json"


def sends(body, *headers, status="200 OK", length=None, chunked=False):
    """Return a response in place of a file; its length may be wrong."""
    length = len(body) if length is None else length
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
    head = "\r\n".join([f"HTTP/1.1 {status}", framing, *headers, "", ""]).encode()
    if chunked:
        pieces = [body[start : start + 700] for start in range(0, len(body), 700)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    return lambda handler: handler.wfile.write(head + body)


def test_files_that_are_only_called_encoded_are_read(device, vendor, server):
    for path, data in server.files.items():
        server.special[path] = sends(data, "Content-Encoding: identity, aws-chunked")
    assert device.update(f"{server.address}//", root=vendor.root).new == "model v1 (mid)"


def test_a_compressed_release_is_refused(device, vendor, server):
    path = target_in(server.files)
    body = gzip.compress(server.files[path])
    server.special[path] = sends(body, "Content-Encoding: gzip", chunked=True)
    with pytest.raises(DownloadError, match="compresses it by gzip, which was not asked for"):
        device.update(server.address, root=vendor.root)


@pytest.mark.parametrize(
    ("headers", "body", "message"),
    [
        (["Content-Encoding: br"], b"x", "compresses it by br, which was not asked for"),
        (["Content-Encoding: gzip, gzip"], b"x", "compresses it by gzip, gzip"),
        (["Content-Type: text/html"], PAGE, "sends an HTML page in place of the file"),
        ([], gzip.compress(b"{}"), "not what the vendor signed"),
        ([], b"", "not what the vendor signed"),
        ([], b"Not found", "not what the vendor signed"),
    ],
)
def test_the_file_and_the_cause_are_named(device, vendor, server, headers, body, message):
    for name in ("timestamp", "2.targets"):
        path = f"metadata/{name}.json"
        server.special = {path: sends(body, *headers)}
        with pytest.raises((DownloadError, UntrustedUpdateError), match=message) as caught:
            device.update(server.address, root=vendor.root)
        assert str(caught.value).startswith(f"{server.address}/{path}: ")
    server.special = {}
    assert device.update(server.address, root=vendor.root).new == "model v1 (mid)"


@pytest.mark.parametrize(
    "response",
    [
        sends(PAGE, "Content-Type: text/html"),
        sends(PAGE, chunked=True),
        sends(b"", "Location: /index.html", status="302 Found"),
        sends(b"<Error><Code>AccessDenied</Code></Error>", status="403 Forbidden"),
        sends(b"gone", status="410 Gone"),
    ],
)
def test_a_host_without_the_next_root_may_send_a_page(device, vendor, server, response):
    server.files["index.html"] = PAGE
    vendor.rotate("root")
    server.files |= vendor.files()  # no page hides the root that exists
    server.special["metadata/3.root.json"] = response
    assert device.update(server.address, root=vendor.root).new == "model v1 (mid)"
    assert (NEXT_ROOT, None) in server.requests
