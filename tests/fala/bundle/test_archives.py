"""Only one form of zip archive is a bundle, so that all readers read the same."""

import os
import struct
import zipfile
import zlib

import pytest

from bundles import archive_of, entries_of, refused, renamed, write_word_vector_release
from fala import Bundle, BundleDigestError, BundleError, BundleFormatError
from fala.bundle import archive as archive_module
from fala.bundle import format as layout


def test_paths_without_a_bundle_file_are_rejected(tmp_path):
    for path in (tmp_path, tmp_path / ("x" * 5000), "/dev/null", tmp_path / "none"):
        with pytest.raises(BundleError):
            Bundle.open(path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(BundleFormatError, match="not a file"):  # without waiting for a writer
            Bundle.open(tmp_path / "pipe")


def test_other_bytes_and_added_bytes_are_rejected(release, bad):
    for data in (b"", b"PK", b"not a zip" * 10, b"\0" * 1000):
        refused(bad(data), BundleFormatError, "not a bundle: it is not a zip")
    data = release.path.read_bytes()
    refused(bad(data + b"x"), BundleFormatError, "bytes after it")
    refused(bad(b"x" + data), BundleFormatError, "directory is not that of a bundle")
    entries, length, start = struct.unpack("<HII", data[-12:-2])
    hidden = data[:start] + b"hidden" + data[start:]
    hidden = hidden[:-12] + struct.pack("<HII", entries, length, start + 6) + hidden[-2:]
    refused(bad(hidden), BundleFormatError, "belong to no file")


@pytest.mark.parametrize(
    "name",
    [
        "../x", "a/../../x", "/etc/x", "C:/x", "C:x", "a\\x", "..\\x", "./x", "a//x", "a/", "~/x",
        "a/.", "-x", "nul\0.x", "new\nline", "é", "x" * 300,
    ],
)  # fmt: skip
def test_unsafe_paths_are_rejected(release, bad, name):
    # zipfile itself mends some names as it writes, so a harmless one is replaced in the bytes.
    raw = name.encode()
    data = archive_of([("q" * len(raw), b""), *entries_of(release.path)])
    refused(bad(renamed(data, "q" * len(raw), raw)), BundleFormatError, "unsafe path")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_links_duplicates_and_compressed_entries_are_rejected(release, bad, tmp_path):
    entries = entries_of(release.path)
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        for name, data in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o120777 if name == layout.VECTORS else 0o100644) << 16
            archive.writestr(entry, data)
    refused(tmp_path / "link.zip", BundleFormatError, "not a regular file")
    refused(bad(archive_of([*entries, entries[0]])), BundleFormatError, "twice")
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        refused(bad(archive_of(entries, method)), BundleFormatError, "compressed or encrypted")


def field(data, signature, offset, layout_, value):
    """Return an archive with one field changed in its last header of a kind."""
    position = data.rindex(signature) + offset
    size = struct.calcsize(layout_)
    return data[:position] + struct.pack(layout_, value) + data[position + size :]


@pytest.mark.parametrize(
    ("signature", "offset", "kind", "value"),
    [
        (b"PK\3\4", 14, "<I", 0),  # checksum
        (b"PK\3\4", 30, "<c", b"X"),  # name
        (b"PK\3\4", 28, "<H", 4),  # length of the extra field
        (b"PK\1\2", 24, "<I", 0xFFFFFFFF),  # ZIP64
        (b"PK\1\2", 42, "<I", 0),  # lies over the first entry
        (b"PK\1\2", 30, "<H", 60000),  # longer than the directory
        (b"PK\5\6", 4, "<H", 1),  # several disks
        (b"PK\5\6", 8, "<H", 1),
        (b"PK\5\6", 10, "<H", 0xFFFF),
        (b"PK\5\6", 12, "<I", 0xFFFFFFFF),
        (b"PK\5\6", 16, "<I", 0xFFFFFFFF),
        (b"PK\5\6", 20, "<H", 1),  # a comment that is not there
    ],
)
def test_wrong_headers_are_rejected(release, bad, signature, offset, kind, value):
    data = field(release.path.read_bytes(), signature, offset, kind, value)
    refused(bad(data), BundleFormatError, r"archive|compressed|bundle")


def rewritten(entries, change):
    """Return a bundle's archive whose second file is written in another way.

    ``change`` is given the fields of its headers, and adds what lies behind each of their names.
    """
    body, directory = b"", b""
    for number, (name, data) in enumerate(entries):
        entry = {
            "flags": 0, "name": name.encode(), "local_extra": b"", "central_extra": b"",
            "comment": b"", "after": b"", "disk": 0, "attributes": 0o100644 << 16,
        }  # fmt: skip
        if number == 1:
            change(entry)
        raw, crc, size = entry["name"], zlib.crc32(data), len(data)
        common = (20, entry["flags"], 0, 0, 0x21, crc, size, size, len(raw))
        common = struct.pack("<HHHHHIIIH", *common)
        local, central, comment = entry["local_extra"], entry["central_extra"], entry["comment"]
        further = (len(central), len(comment), entry["disk"], 0, entry["attributes"], len(body))
        directory += b"PK\1\2" + struct.pack("<H", 0x314) + common
        directory += struct.pack("<HHHHII", *further) + raw + central + comment
        body += b"PK\3\4" + common + struct.pack("<H", len(local)) + raw + local + data
        body += entry["after"]
    end = struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


def extra(kind, content):
    return struct.pack("<HH", kind, len(content)) + content


ANOTHER_NAME = extra(0x7075, b"\1" + struct.pack("<I", zlib.crc32(b"x")) + b"../../evil")


@pytest.mark.parametrize(
    "change",
    [
        {"central_extra": ANOTHER_NAME}, {"local_extra": ANOTHER_NAME},
        {"central_extra": ANOTHER_NAME, "local_extra": ANOTHER_NAME},
        {"central_extra": extra(1, bytes(24))}, {"local_extra": extra(1, bytes(16))},  # Zip64
        {"central_extra": extra(0x5455, bytes(5))}, {"local_extra": extra(0xCAFE, b"")},
        {"central_extra": b"\0"}, {"comment": b"a note"}, {"comment": ANOTHER_NAME},
        {"flags": 8, "after": bytes(16)}, {"after": b"PK\7\x08" + bytes(12)},  # a data descriptor
        {"flags": 1}, {"flags": 0x40}, {"flags": 0x2000}, {"flags": 0xC00}, {"disk": 1},
        {"attributes": 0o100644 << 16 | 0x10}, {"attributes": 0o040755 << 16},
    ],
    ids=range(19),
)  # fmt: skip
def test_what_two_readers_of_a_zip_read_in_two_ways_is_rejected(release, bad, change):
    entries = entries_of(release.path)
    assert Bundle.open(bad(rewritten(entries, lambda entry: None))) == release
    data = rewritten(entries, lambda entry: entry.update(change))
    refused(bad(data), BundleFormatError, "archive|encrypted|regular")


def test_names_that_a_file_system_takes_for_one_another_are_rejected(release, bad):
    entries = entries_of(release.path)
    refused(
        bad(archive_of([*entries, (layout.HEAD_BIAS.upper(), b"")])), BundleFormatError, "twice"
    )
    for name in (f"{layout.HEAD_BIAS}/x", f"{layout.HEAD_BIAS}/x/y", "head"):
        refused(bad(archive_of([*entries, (name, b"")])), BundleFormatError, "file and a folder")


def test_too_many_entries_are_rejected(release, bad, monkeypatch):
    monkeypatch.setattr(archive_module, "MAX_ENTRIES", 2)
    refused(bad(release.path.read_bytes()), BundleFormatError, "directory")


def test_a_file_changed_after_opening_is_rejected(tmp_path):
    bundle = write_word_vector_release(tmp_path / "a.fala")
    write_word_vector_release(tmp_path / "a.fala", seed=5)
    with pytest.raises(BundleDigestError, match="not what the vendor packed"):
        bundle.backbone()
    with pytest.raises(BundleDigestError, match="changed since it was opened"):
        bundle.files()
    bundle.path.unlink()
    for read in (bundle.backbone, bundle.files):
        with pytest.raises(BundleError, match="no such file"):
            read()
