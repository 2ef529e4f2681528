"""Ordinary web servers compress files and send pages for missing ones; updates work."""

import gzip
import zlib

import pytest

from fala.base.errors import DownloadError, UntrustedUpdateError
from vendors import target_in

pytestmark = pytest.mark.slow

PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html><title>Home</title><p>Welcome" + b"." * 3_000
JSON = b'{"signed": {}}'
NEXT_ROOT = "metadata/2.root.json"
BOMB = 20_000_000


def raw_deflate(data):
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


def sends(body, *headers, status="200 OK", length=None, chunked=False):
    """Return a response in place of a file; its length may be wrong."""
    length = len(body) if length is None else length
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
    lines = [f"HTTP/1.1 {status}", framing, "Connection: close", *headers, "", ""]
    head = "\r\n".join(lines).encode()
    if chunked:
        pieces = [body[start : start + 700] for start in range(0, len(body), 700)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    return lambda handler: handler.wfile.write(head + body)


@pytest.mark.parametrize(
    ("encoding", "compress", "options"),
    [
        ("X-GZip", gzip.compress, {"chunked": True}),
        ("deflate", zlib.compress, {}),
        ("deflate", raw_deflate, {"chunked": True}),
        ("gzip", gzip.compress, {"length": 10_000_000}),
        ("identity, aws-chunked", bytes, {}),
    ],
)
def test_compressed_files_are_read(client, vendor, server, encoding, compress, options):
    for path, data in server.files.items():
        server.special[path] = sends(compress(data), f"Content-Encoding: {encoding}", **options)
    assert client.update(f"{server.address}//", root=vendor.root) == "model v1"


def test_a_compressed_release_starts_again_instead_of_resuming(client, vendor, server):
    """Ranges of a compressed file are of the compressed bytes."""
    path = target_in(server.files)
    data, asked = server.files[path], []
    packed = gzip.compress(data)

    def send(handler):
        asked.append(handler.headers["Range"])
        header = "Content-Encoding: gzip"
        if len(asked) == 1:
            sends(packed[: len(packed) // 2], header, length=len(packed))(handler)
        elif asked[-1]:
            start = int(asked[-1][6:-1])
            place = f"Content-Range: bytes {start}-{len(packed) - 1}/{len(packed)}"
            sends(packed[start:], header, place, status="206 Partial")(handler)
        else:
            sends(packed, header)(handler)

    server.special[path] = send
    assert client.update(server.address, root=vendor.root) == "model v1"
    assert asked[0] is asked[-1] is None and len(asked) == 3


@pytest.mark.parametrize("name", ["metadata/timestamp.json", "targets"])
def test_a_bomb_is_bounded(client, vendor, server, name):
    path = target_in(server.files) if name == "targets" else name
    stream = zlib.compressobj(wbits=31)
    body = b"".join(stream.compress(bytes(1_000_000)) for _ in range(BOMB // 1_000_000))
    server.special[path] = sends(body + stream.flush(), "Content-Encoding: gzip")
    with pytest.raises(DownloadError, match=r"exceeding|longer than"):
        client.update(server.address, root=vendor.root)
    parts = (client.folder / "updates").glob("*.part")
    assert sum(part.stat().st_size for part in parts) <= len(server.files[target_in(server.files)])
    assert client.newest is None


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (sends(b"x", "Content-Encoding: br"), "compresses it by br, which was not asked for"),
        (sends(b"x", "Content-Encoding: gzip, gzip"), "compresses it by gzip, gzip"),
        (sends(JSON, "Content-Encoding: gzip"), "announces gzip, but sends other content"),
        (sends(JSON, "Content-Encoding: deflate"), "announces deflate"),
        (sends(gzip.compress(b"{}" * 50)[:-9], "Content-Encoding: gzip"), "ends early"),
        (sends(b"", "Content-Encoding: gzip"), "ends early"),
        (sends(PAGE, "Content-Type: text/html"), "sends an HTML page in place of the file"),
        (sends(gzip.compress(b"{}")), "not what the vendor signed"),
        (sends(b""), "not what the vendor signed"),
        (sends(b"Not found"), "not what the vendor signed"),
        (sends(b"", status="204 Nothing"), "the server returns 204 Nothing"),
        (sends(b"", status="500 Broken"), "the server returns 500 Broken"),
        (sends(b"", "Location: file:///etc/passwd", status="301 Moved"), "cannot be reached"),
        (sends(b"", "Location: /metadata/2.targets.json", status="302 Found"),
         "not what the vendor signed|too many redirects"),
    ],
    ids=range(14),
)  # fmt: skip
def test_the_file_and_the_cause_are_named(client, vendor, server, response, message):
    for name in ("timestamp", "2.targets"):
        path = f"metadata/{name}.json"
        server.special = {path: response}
        with pytest.raises((DownloadError, UntrustedUpdateError), match=message) as caught:
            client.update(server.address, root=vendor.root)
        assert str(caught.value).startswith(f"{server.address}/{path}: ")
    server.special = {}
    assert client.update(server.address, root=vendor.root) == "model v1"


@pytest.mark.parametrize(
    "response",
    [
        sends(PAGE, "Content-Type: text/html"),
        sends(PAGE, chunked=True),
        sends(gzip.compress(PAGE), "Content-Encoding: gzip"),
        sends(b"", "Location: /index.html", status="302 Found"),
        sends(b"<Error><Code>AccessDenied</Code></Error>", status="403 Forbidden"),
        sends(b"gone", status="410 Gone"),
    ],
)
def test_a_host_without_the_next_root_may_send_a_page(client, vendor, server, response):
    server.files["index.html"] = PAGE
    vendor.rotate("root")
    server.files |= vendor.files()  # no page hides the root that exists
    server.special["metadata/3.root.json"] = response
    assert client.update(server.address, root=vendor.root) == "model v1"
    assert (NEXT_ROOT, None) in server.requests
