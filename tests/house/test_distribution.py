"""The wheel, the source archive, and their version."""

import configparser
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata

import pytest
from packaging.metadata import Metadata

import fala
from checkout import ROOT

PACKAGES = [ROOT / name for name in ("sdk/fala", "export/fala_export", "device_sim/fala_sim")]
MEGABYTE = 1_000_000

BUILD = """
import sys
from hatchling import build
build.build_wheel(sys.argv[1])
build.build_sdist(sys.argv[1])
"""


def files_in(package):
    return {file for file in package.rglob("*") if file.is_file() and file.suffix != ".pyc"}


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The wheel and the source archive of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-c", BUILD, folder], cwd=ROOT, check=True, timeout=240)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def test_the_metadata_are_valid_for_a_package_index(archives):
    with zipfile.ZipFile(archives[0]) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        fields = Metadata.from_email(archive.read(name), validate=True)
    assert fields.author == "The FaLA authors" or fields.author_email
    assert fields.license_expression == "Apache-2.0"
    assert fields.description_content_type == "text/markdown"
    versions = {line.rpartition(" ")[2] for line in fields.classifiers if "Python :: 3." in line}
    assert sorted(versions, key=lambda version: int(version[2:]))[0] == "3.10"
    assert all(fields.requires_python.contains(version) for version in versions)


def test_the_wheel_has_the_three_packages_and_the_plugin(archives):
    """With built-in models, templates and py.typed, and no other files."""
    with zipfile.ZipFile(archives[0]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {
        file.relative_to(package.parent).as_posix()
        for package in PACKAGES
        for file in files_in(package)
    } | {"fala_command.py", "pytest_fala.py"}
    assert {f"fala_sim/playground/builtin/{name}.fala" for name in ("bert", "glove")} < names
    assert {f"{package.name}/py.typed" for package in PACKAGES} < names


def test_the_wheel_has_the_fixtures_and_the_programs(archives):
    """In an installation; the tests of this checkout load the plugin in ``conftest.py``."""
    with zipfile.ZipFile(archives[0]) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        entries = configparser.ConfigParser()
        entries.read_string(archive.read(name).decode())
    assert dict(entries["pytest11"]) == {"pytest_fala": "pytest_fala"}
    # It imports the other modules of a command, so that Ctrl-C prints no traceback.
    assert {script.partition(":")[0] for script in entries["console_scripts"].values()} == {
        "fala_command"
    }


def test_the_source_archive_has_the_tables_and_no_records(archives):
    assert archives[1].stat().st_size < 8.5 * MEGABYTE
    with tarfile.open(archives[1]) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    assert {"pyproject.toml", "README.md", "LICENSE", "conftest.py"} < names
    assert {
        "sdk/fala/py.typed",
        "sdk/fala_command.py",
        "sdk/pytest_fala.py",
        "tests/support/checkout.py",
        "examples/app.py",
        "docs/index.md",
        "mkdocs.yml",
    } < names
    laboratory = {name for name in names if name.startswith("device_sim/")}
    source = {file.relative_to(ROOT).as_posix() for file in files_in(PACKAGES[2])}
    assert source < laboratory
    tables = r"device_sim/results/([a-z]+/tables/[^/]+|([a-z]+/)?README\.md)"
    study = r"device_sim/studies/[a-z]+/([a-z_]+\.py|results/tables/[^/]+|README\.md)"
    for name in laboratory - source:
        assert re.fullmatch(f"{tables}|{study}", name), name
    leftovers = re.compile(r"__pycache__|\.hypothesis|_cache/")
    assert list(filter(leftovers.search, names)) == []


def test_the_version_equals_the_distributions():
    assert fala.__version__ == metadata.version("fala-sdk")
    with pytest.raises(AttributeError, match="no attribute 'version'"):
        fala.version  # noqa: B018
