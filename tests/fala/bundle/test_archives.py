import struct
import zipfile

import pytest

from bundles import archive_of, entries_of, refused, renamed, write_word_vector_release
from fala.bundle import archive as archive_module
from fala.bundle import format as layout
from fala.errors import BundleDigestError, BundleError, BundleFilesError, BundleFormatError


def test_other_bytes_and_added_bytes_are_rejected(release, bad):
    for data in (b"", b"PK", b"not a zip" * 10, b"\0" * 1000):
        refused(bad(data), BundleFormatError, "not a bundle: not a zip")
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
    refused(bad(renamed(data, "q" * len(raw), raw)), BundleFilesError, "unsafe path")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_links_duplicates_and_compressed_entries_are_rejected(release, bad, tmp_path):
    entries = entries_of(release.path)
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        for name, data in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o120777 if name == layout.VECTORS else 0o100644) << 16
            archive.writestr(entry, data)
    refused(tmp_path / "link.zip", BundleFilesError, "not a regular file")
    refused(bad(archive_of([*entries, entries[0]])), BundleFilesError, "twice")
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        refused(bad(archive_of(entries, method)), BundleFormatError, "compressed or encrypted")


def field(data, signature, offset, layout_, value):
    """An archive with one field of its last header of a kind changed."""
    position = data.rindex(signature) + offset
    size = struct.calcsize(layout_)
    return data[:position] + struct.pack(layout_, value) + data[position + size :]


@pytest.mark.parametrize(
    ("signature", "offset", "kind", "value"),
    [
        (b"PK\3\4", 8, "<H", 8),  # method
        (b"PK\3\4", 14, "<I", 0),  # checksum
        (b"PK\3\4", 22, "<I", 1),  # size
        (b"PK\3\4", 30, "<c", b"X"),  # name
        (b"PK\3\4", 28, "<H", 4),  # length of the extra field
        (b"PK\1\2", 8, "<H", 1),  # encrypted
        (b"PK\1\2", 8, "<H", 8),  # sizes after the content
        (b"PK\1\2", 20, "<I", 0xFFFFFFFF),  # ZIP64
        (b"PK\1\2", 24, "<I", 0xFFFFFFFF),
        (b"PK\1\2", 42, "<I", 0),  # lies over the first entry
        (b"PK\1\2", 42, "<I", 0xFFFFFFFF),
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


def test_too_many_entries_are_rejected(release, bad, monkeypatch):
    monkeypatch.setattr(archive_module, "MAX_ENTRIES", 2)
    refused(bad(release.path.read_bytes()), BundleFormatError, "directory")


def test_a_file_changed_after_opening_is_rejected(tmp_path):
    bundle = write_word_vector_release(tmp_path / "a.fala")
    write_word_vector_release(tmp_path / "a.fala", seed=5)
    with pytest.raises(BundleDigestError, match="not what the vendor packed"):
        bundle.backbone()
    with pytest.raises(BundleDigestError, match="changed since it was opened"):
        bundle.contents()
    bundle.path.unlink()
    for read in (bundle.head, bundle.contents):
        with pytest.raises(BundleError, match="no such file"):
            read()
