"""`fala-sim data`: downloads from a local server, and their failures."""

import contextlib
import gzip
import hashlib
import io
import json
import random
import tarfile
import zipfile
from dataclasses import replace
from functools import partial

import pytest

import sim_command
from fala import DataError
from fala_sim.data.catalogue import CATALOGUE
from fala_sim.data.division import Partition
from fala_sim.data.fetch import unpack
from fala_sim.data.location import find_location
from file_server import FileServer
from laboratory import write_data
from sim_command import done, run, works

LARGE = 300_000
fails = partial(sim_command.fails, notices=True)


@pytest.fixture
def server():
    with FileServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def get(name, folder, *more):
    return run("data", "get", name, "--data-dir", folder, *more)


def listed(folder):
    return {row["name"]: row for row in done("data", "list", "--data-dir", folder)["data_sets"]}


def publish(monkeypatch, server, name, contents):
    """Publish a data set on the loopback server."""
    data_set = CATALOGUE[name]
    server.files.update(contents)
    files = tuple(
        replace(
            file,
            url=f"{server.address}/{file.name}",
            sha256=hashlib.sha256(contents[file.name]).hexdigest(),
        )
        for file in data_set.files
    )
    monkeypatch.setitem(CATALOGUE, name, replace(data_set, files=files))


def hate_speech(tmp_path, more=0):
    """The three files of HS-Brexit, with invented content."""
    whole = json.loads((write_data(tmp_path / "made") / "Small_train.json").read_text())
    parts = {"train": {}, "dev": {}, "test": {}}
    for number, (name, entry) in enumerate(whole.items()):
        parts[list(parts)[number % 3]][name] = entry
    noise = random.Random(0).randbytes(more).hex()
    return {
        f"HS-Brexit_{part}.json": json.dumps(
            entries | {"x": {"text": noise, "annotations": "1", "annotators": "a0"}}
            if more and part == "train"
            else entries
        ).encode()
        for part, entries in parts.items()
    }


def movie_lens():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("", "movies.csv", "ratings.csv"):
            archive.writestr(f"ml-latest-small/{name}", name)
    return {"ml-latest-small.zip": packed.getvalue()}


def test_a_downloaded_data_set_is_found_by_name(server, folder, tmp_path, monkeypatch):
    publish(monkeypatch, server, "hs-brexit", hate_speech(tmp_path))
    assert listed(folder)["hs-brexit"]["path"] is None
    result = get("hs-brexit", folder, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["new"] is True
    assert "its licence: none stated" in result.stderr
    assert Partition("hs-brexit", folder, users=1, seed=0).divide("test").users[0].test
    assert listed(folder)["hs-brexit"]["path"] == str(folder / "hs-brexit")
    requests = len(server.requests)
    again = json.loads(get("hs-brexit", folder, "--json").stdout)
    assert again["new"] is False
    assert len(server.requests) == requests
    assert sorted(path.name for path in folder.iterdir()) == ["hs-brexit"]


def test_the_default_download_folder_is_that_of_runs(server, tmp_path, monkeypatch):
    monkeypatch.delenv("FALA_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    publish(monkeypatch, server, "hs-brexit", hate_speech(tmp_path))
    works("data", "get", "hs-brexit")
    assert find_location("hs-brexit", None).path.is_relative_to(tmp_path / "own")


def test_files_of_an_interrupted_download_are_kept(server, folder, tmp_path, monkeypatch):
    contents = hate_speech(tmp_path)
    publish(monkeypatch, server, "hs-brexit", contents)
    last = server.files.pop("HS-Brexit_test.json")
    fails(get("hs-brexit", folder), "HS-Brexit_test.json: the publisher answered 404")
    assert not (folder / "hs-brexit").exists()
    server.files["HS-Brexit_test.json"] = last
    server.requests.clear()
    works("data", "get", "hs-brexit", "--data-dir", folder)
    assert [name for name, _ in server.requests] == ["HS-Brexit_test.json"]
    for file, data in contents.items():
        assert (folder / "hs-brexit" / file).read_bytes() == data


@pytest.mark.parametrize("trouble", ["breaks off", "another file", "cannot be reached"])
def test_a_failed_download_ends_in_one_line_and_leaves_nothing_half(
    server, folder, tmp_path, monkeypatch, trouble
):
    publish(monkeypatch, server, "hs-brexit", hate_speech(tmp_path, more=LARGE))
    if trouble == "breaks off":
        server.cut_after = LARGE
        words = ["HS-Brexit_train.json", "broke off", "tries again"]
    elif trouble == "another file":
        server.files["HS-Brexit_train.json"] += b" "
        words = ["not the file that was expected", server.address]
    else:
        with FileServer() as ended:
            publish(monkeypatch, ended, "hs-brexit", hate_speech(tmp_path))
        words = ["cannot be reached", f"put {ended.address}/HS-Brexit_train.json",
                 "none stated by the task", f"into {folder / 'hs-brexit'}"]  # fmt: skip
    fails(get("hs-brexit", folder), *words)
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_an_archive_is_unpacked_without_its_folder(server, folder, monkeypatch):
    publish(monkeypatch, server, "movielens", movie_lens())
    works("data", "get", "movielens", "--data-dir", folder)
    unpacked = {path: path.read_text() for path in folder.rglob("*.*")}
    assert unpacked == {
        folder / "movielens-small" / name: name for name in ("movies.csv", "ratings.csv")
    }


def test_data_sets_with_terms_are_not_downloaded(folder):
    fails(
        get("mind", folder), "asks you to accept terms at https://msnews.github.io/",
        f"put news.tsv and behaviors.tsv into {folder / 'mind-small'}",
    )  # fmt: skip
    fails(
        get("scale-reviews", folder), "no checksum is published, so download scale_data.tar.gz",
        "https://www.cs.cornell.edu", f"into {folder / 'scale-reviews'}",
    )  # fmt: skip
    fails(get("nothing", folder), "no data set 'nothing'; one of ")


def test_the_list_shows_titles_and_licences(folder):
    shown = works("data", "list", "--data-dir", folder).stdout
    for data_set in CATALOGUE.values():
        assert f"{data_set.name}: {data_set.title}" in shown
        assert data_set.licence in shown
    for row in listed(folder).values():
        assert all(len(sha256) == 64 for sha256 in row["files"].values())
    assert listed(folder)["mind"]["files"] == {}


# --- archives --------------------------------------------------------------------------------


def make_zip(path, *names, kind=0o100644):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = kind << 16
            archive.writestr(info, "content")
    return path


def make_tar(path, *members):
    with gzip.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            info.size = 7 if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"content"))
    return path


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "./../evil"])
def test_unpacked_paths_stay_within_the_folder(tmp_path, name):
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    unpack(make_zip(tmp_path / "a.zip", "good.csv", name), into)
    with contextlib.suppress(DataError):  # a tar is rejected, or its path stays within
        packed = [("b", tarfile.REGTYPE), (name, tarfile.REGTYPE)]
        unpack(make_tar(tmp_path / "a.tar.gz", *packed), into)
    unpacked = {path for path in tmp_path.rglob("*evil") if path.is_file()}
    assert unpacked and all(path.is_relative_to(into) for path in unpacked)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_not_unpacked(tmp_path, kind):
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(make_tar(tmp_path / "a.tar.gz", ("a/link", kind)), into)
    unpack(make_zip(tmp_path / "a.zip", "link", kind=0o120777), tmp_path)
    assert not (tmp_path / "link").is_symlink()


def test_a_common_top_folder_is_stripped(tmp_path):
    names = ["scaledata/A+B/subj.A+B", "scaledata/C/subj.C"]
    archive = make_tar(
        tmp_path / "a.tar.gz", ("./scaledata", tarfile.DIRTYPE),
        *((name, tarfile.REGTYPE) for name in names),
    )  # fmt: skip
    (tmp_path / "one").mkdir()
    unpack(archive, tmp_path / "one")
    assert (tmp_path / "one" / "A+B" / "subj.A+B").read_text() == "content"
    (tmp_path / "two").mkdir()
    unpack(make_zip(tmp_path / "b.zip", "x/one.csv", "two.csv"), tmp_path / "two")
    assert (tmp_path / "two" / "x" / "one.csv").is_file()


@pytest.mark.parametrize("name", ["b.zip", "b.tar.gz"])
def test_a_damaged_archive_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"no archive")
    with pytest.raises(DataError, match=f"{name}: cannot be unpacked"):
        unpack(tmp_path / name, tmp_path)
