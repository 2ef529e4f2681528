"""The specifications match the code: versions, fields, files, tables and columns."""

import re
import sqlite3
from dataclasses import fields

import pytest

import fala_export
from checkout import ROOT
from fala.backbones.adapter import MAX_BOTTLENECK
from fala.bundle import archive, manifest, signature
from fala.bundle import format as layout
from fala.slots import validation
from fala.store import schema

BUNDLE = (ROOT / "docs/reference/bundle-format.md").read_text(encoding="utf-8")
STORE = (ROOT / "docs/reference/store-schema.md").read_text(encoding="utf-8")


#: Code that reads a detail of a manifest.
_READ = re.compile(r'(?:manifest|self)\.details(?:\.get\(|\[)"(\w+)"')


def section(page, heading):
    """The text under a heading, up to the next heading."""
    return re.split(r"^#+ ", page.partition(f"\n{heading}\n")[2], flags=re.MULTILINE)[0]


def rows(text):
    """The cells of a section's tables, without headers."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row, after in zip(cells, [*lines[1:], ""], strict=True)
            if not row[0].startswith("---") and not after.startswith("| ---")]  # fmt: skip


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


class TestBundle:
    def test_the_page_has_the_codes_version(self):
        assert f"version **{layout.FORMAT_VERSION}**" in BUNDLE
        assert f"signature format **{signature.FORMAT}**" in BUNDLE
        assert signature._CONTEXT.decode().strip() in BUNDLE

    def test_the_page_has_the_manifests_fields(self):
        listed = {names(row[0])[0]: row[1] for row in rows(section(BUNDLE, "## `manifest.json`"))}
        assert set(listed) == {field.name for field in fields(fala_export.Manifest)}
        assert set(names(listed["kind"])) == {f'"{kind}"' for kind in layout.BACKBONE_FILES}
        for field, most in (("dimension", layout.MAX_DIMENSION), ("max_length", layout.MAX_TOKENS),
                            ("labels", layout.MAX_LABELS)):  # fmt: skip
            assert f"{most:,}" in listed[field]

    def test_the_page_has_every_detail_that_a_device_reads(self):
        listed = {
            name
            for row in rows(section(BUNDLE, "### What readers look for in `details`"))
            for name in names(row[0])
        }
        read = {
            name
            for file in (ROOT / "sdk/fala").rglob("*.py")
            for name in _READ.findall(file.read_text(encoding="utf-8"))
        }
        assert {"pad_id", "product", "version", "scales", "probes", "base"} <= read <= listed

    def test_the_page_has_the_bundles_files(self):
        listed = {name for row in rows(section(BUNDLE, "## Files")) for name in names(row[0])}
        paths = {
            value for name, value in vars(layout).items()
            if name.isupper() and isinstance(value, str) and "." in value
        }  # fmt: skip
        assert paths <= listed
        for part in layout.BRIDGE_FILES:
            assert {part, f"bridges/DIGEST/{part}"} & listed
        for file in layout.ADAPTER_FILES:
            assert file in BUNDLE or file.rpartition("/")[2].removesuffix(".npy") in BUNDLE

    @pytest.mark.parametrize(
        "limit",
        [
            f"at most {archive.MAX_ENTRIES} entries",
            f"at most {layout.MAX_MANIFEST_BYTES >> 20} MiB",
            f"at most {layout.MAX_WORDS:,}",
            f"at most {layout.MAX_LAYERS} layers",
            f"bottleneck of at most {MAX_BOTTLENECK}",
            f"up to {validation.MOST_PROBES}",
            f"`{manifest.PRODUCT.pattern}`",
        ],
    )
    def test_the_page_has_the_codes_limit(self, limit):
        assert limit in " ".join(BUNDLE.split())


class TestStore:
    @pytest.fixture(scope="class")
    def store(self):
        database = sqlite3.connect(":memory:", isolation_level=None)
        schema.create_tables(database, "memory")
        yield database
        database.close()

    def test_the_page_has_the_schemas_version(self):
        assert f"version **{schema.VERSION}**" in STORE

    def test_the_page_has_the_schemas_tables(self):
        listed = re.findall(r"^## `(\w+)`$", STORE, re.MULTILINE)
        assert sorted(listed) == sorted(schema.TABLES)

    @pytest.mark.parametrize("table", schema.TABLES)
    def test_the_page_has_a_tables_columns(self, store, table):
        pairs = {(name, kind) for _, name, kind, *_ in store.execute(f"PRAGMA table_info({table})")}
        listed = rows(section(STORE, f"## `{table}`"))
        assert pairs == {(names(row[0])[0], row[1]) for row in listed if len(row) == 3}
