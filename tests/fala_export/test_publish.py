"""A vendor's repository: keys, releases, and processes killed while they publish."""

import itertools
import re
from contextlib import nullcontext
from functools import partial

import pytest
from tuf.api.metadata import Metadata

from bundles import make_head, write_onnx_release, write_word_vector_release, write_word_vectors
from export_command import done, failed, fails, run, works
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.testing import run_apart
from fala.testing.processes import die
from fala_export.base import files as writing
from fala_export.base.errors import ExportError
from fala_export.bundle.writing import add_version
from fala_export.updates import publishing, repository
from fala_export.updates.keys import Keyring, make_key, read_key
from file_server import FileServer
from vendors import Threshold, Vendor


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    write_word_vector_release(folder / "old.fala")
    write_onnx_release(folder / "new.fala", make_head(seed=5))
    return folder


@pytest.fixture(scope="module")
def begun(tmp_path_factory, releases):
    vendor = Vendor(tmp_path_factory.mktemp("begun") / "vendor")
    vendor.publish(releases / "old.fala")
    return vendor


@pytest.fixture
def vendor(tmp_path, begun):
    return begun.copy(tmp_path / "vendor")


def installed_manifest(tmp_path, vendor, root=None, releases=None, product=None):
    """The manifest that a new device installs."""
    with (
        FileServer(vendor.files()) as server,
        Device.create(tmp_path / "device", releases / "old.fala") as device,
    ):
        report = device.update(server.address, root=root or vendor.root, product=product)
        return device._own.snapshot().release.bundle.manifest if report else None


class TestCommands:
    def test_a_published_release_is_installed_by_a_device(self, tmp_path, releases):
        repo = tmp_path / "repo"
        begun = done("repository", "begin", repo, "--threshold", "root=2/2", "--days", "root=99")
        assert begun["roles"]["root"]["threshold"] == "2/2"
        assert begun["roles"]["timestamp"]["threshold"] == "1/1"
        first = done("publish", repo, releases / "old.fala")
        assert (first["product"], first["version"]) == ("model", 1)
        done("repository", "delegate", repo, "news", "--threshold", "2/3")
        published = done("publish", repo, releases / "new.fala", "--product", "news")
        assert (published["product"], published["version"]) == ("news", 1)
        assert done("repository", "rotate", repo, "--role", "news")["rotated"] == "news"
        rotated = done("repository", "rotate", repo, "--role", "root", "--threshold", "1/2")
        assert rotated["roles"]["root"] | {"expires": ""} == {
            "version": 2, "expires": "", "expired": False, "threshold": "1/2",
        }  # fmt: skip
        assert done("repository", "renew", repo)["renewed"] == ["timestamp"]
        shown = done("repository", "show", repo)
        assert shown["releases"] == {"model": 1, "news": 1}
        printed = works("repository", "show", repo).stdout
        assert "release: version 1 of news" in printed
        assert re.search(r"news +3 +2/3 ", printed)
        vendor = Vendor.__new__(Vendor)
        vendor.folder = repo
        manifest = installed_manifest(tmp_path, vendor, begun["root"], releases, "news")
        assert (manifest.name, manifest.version) == ("tiny encoder", 1)

    def test_a_signed_bundle_is_trusted_by_its_key(self, tmp_path, releases):
        bundle = add_version(tmp_path / "x.fala", Bundle.open(releases / "old.fala"), 7, "model")
        key = done("key", tmp_path / "my.pem")
        assert key["public"] == str(tmp_path / "my.pub")
        signed = done("sign", tmp_path / "x.fala", "--key", tmp_path / "my.pem")
        assert (signed["product"], signed["version"]) == (bundle.product, 7)
        assert signed["key"] == key["hexadecimal"]
        trust = bytes.fromhex(key["hexadecimal"])
        with Device.create(tmp_path / "device", tmp_path / "x.fala", trust=trust) as device:
            assert device.status().release == "model v7 (tiny vectors)"

    def test_invalid_arguments_end_in_one_line(self, tmp_path, vendor, releases):
        folder, keys, new = vendor.folder, vendor.keys, releases / "new.fala"
        write_word_vectors(tmp_path / "backbone.fala")
        add_version(tmp_path / "news.fala", Bundle.open(new), 1, "news")
        add_version(tmp_path / "first.fala", Bundle.open(new), 1, "model")
        (tmp_path / "empty").mkdir()
        (tmp_path / "empty" / "bad.pem").write_text("no key")
        for message, *arguments in (
            ("no such repository", "publish", tmp_path / "none", new, "--key", keys),
            ("is not a complete repository", "publish", tmp_path / "empty", new, "--key", keys),
            ("no such key", "publish", folder, new, "--key", tmp_path / "none"),
            ("must sign, but 0 did.*no such key|cannot be read as a private key",
             "publish", folder, new, "--key", tmp_path / "empty"),
            ("without a head", "publish", folder, tmp_path / "backbone.fala", "--key", keys),
            ("version 1 is published", "publish", folder, new, "--version", 1, "--key", keys),
            ("is version 1, not", "publish", folder, tmp_path / "first.fala", "--version",
             5, "--key", keys),
            ("of news, not of model", "publish", folder, tmp_path / "news.fala", "--product",
             "model", "--key", keys),
            ("a product's name", "publish", folder, new, "--product", "../x", "--key", keys),
            ("name of a role", "repository", "delegate", folder, "root", "--key", keys),
            ("there is no role x", "repository", "rotate", folder, "--role", "x", "--key", keys),
            ("is inside the repository", "repository", "rotate", folder, "--role", "root", "--key",
             keys, "--keys-to", folder / "metadata" / "keys"),
            ("must be ROLE=K/N", "repository", "begin", tmp_path / "r", "--threshold", "2/3"),
            ("must be K/N", "repository", "begin", tmp_path / "r", "--threshold", "root=3/2"),
            ("must be a number of days", "repository", "begin", tmp_path / "r", "--days",
             "root=0"),
            ("cannot be read as a private key", "sign", new, "--key", keys / "root-1.pub"),
        ):  # fmt: skip
            printed = failed(*arguments)
            assert re.search(message, printed), printed
        assert not (tmp_path / "r").exists()
        assert repository.Repository.load(folder).release("model").custom["version"] == 1


class TestKeys:
    def test_private_keys_are_readable_only_by_their_owner(self, vendor):
        assert vendor.keys.stat().st_mode & 0o777 == 0o700
        private = list(vendor.keys.glob("*.pem"))
        assert len(private) == 4
        assert {file.stat().st_mode & 0o777 for file in private} == {0o600}

    def test_a_passphrase_encrypts_the_keys(self, tmp_path, releases):
        phrase, repo = tmp_path / "phrase", tmp_path / "repo"
        phrase.write_text("a long one\nand a second line\n")
        works("repository", "begin", repo, "--passphrase-file", phrase)
        pem = (tmp_path / "repo.keys" / "timestamp-1.pem").read_text()
        assert "ENCRYPTED PRIVATE KEY" in pem
        message = fails(run("publish", repo, releases / "old.fala"), notices=True)
        assert "passphrase" in message.lower() or "password" in message.lower()
        publish = ("publish", repo, releases / "old.fala", "--passphrase-file")
        works(*publish, phrase)
        works(*publish, "-", "--republish", stdin="a long one\n")
        fails(
            run(*publish, "-", "--republish", stdin="another\n"),
            "must sign, but 0 did",
            notices=True,
        )

    def test_a_key_is_never_written_over(self, tmp_path):
        key = make_key(tmp_path / "k.pem").private_bytes_raw()
        with pytest.raises(ExportError, match="never overwritten"):
            make_key(tmp_path / "k.pem")
        assert read_key(tmp_path / "k.pem").private_bytes_raw() == key

    def test_a_threshold_requires_all_its_keys(self, vendor, releases):
        vendor.rotate("targets", threshold=Threshold(2, 2))
        before = vendor.files()
        one, two = vendor.state().delegate("targets").keyids
        for missing in (one, two):
            few = vendor.ring
            del few.signers[missing]
            with pytest.raises(ExportError, match="2 of the 2 keys of role targets"):
                publishing.publish(vendor.folder, releases / "new.fala", few, vendor.now)
        assert vendor.files() == before
        vendor.publish(releases / "new.fala")

    def test_a_new_root_requires_a_signature_by_the_old_root(self, vendor, tmp_path):
        """Otherwise anyone who can write to the server could become its owner."""
        make_key(tmp_path / "thief.pem")
        thief = Keyring([tmp_path / "thief.pem"], vendor.keys)
        with pytest.raises(ExportError, match="role root"):
            vendor.rotate("root", thief)
        assert not (vendor.folder / "metadata" / "2.root.json").exists()
        with pytest.raises(ExportError, match="role targets"):
            publishing.delegate(vendor.folder, "news", thief, vendor.now)
        assert len(list(vendor.keys.glob("root*"))) == 2  # no unused keys
        assert not list(vendor.keys.glob("news*"))


class TestRepository:
    def test_a_tampered_repository_is_rejected(self, vendor, releases):
        path = vendor.folder / "metadata" / "2.targets.json"
        metadata = Metadata.from_file(str(path))
        metadata.signed.targets.clear()
        metadata.to_file(str(path))
        with pytest.raises(ExportError, match="targets is not signed"):
            vendor.publish(releases / "new.fala")

    def test_renew_updates_expiring_roles(self, vendor):
        vendor.days = 20
        assert vendor.renew()["renewed"] == ["snapshot", "timestamp"]
        vendor.days = 200
        renewed = vendor.renew()["renewed"]
        assert renewed == ["root", "snapshot", "targets", "timestamp"]
        assert vendor.state()["root"].signed.version == 2

    def test_delegating_a_product_moves_its_release(self, tmp_path, vendor, releases):
        vendor.delegate("model")
        vendor.publish(releases / "new.fala")
        state = vendor.state()
        assert list(state["targets"].signed.targets) == []
        assert list(state["model"].signed.targets) == ["model/release.fala"]
        manifest = installed_manifest(tmp_path, vendor, releases=releases)
        assert (manifest.product, manifest.version) == ("model", 2)
        with pytest.raises(ExportError, match="already has its own keys"):
            vendor.delegate("model")

    def test_a_release_with_a_version_is_published_unchanged(self, tmp_path, vendor, releases):
        path = tmp_path / "x.fala"
        add_version(path, Bundle.open(releases / "new.fala"), 41, "model")
        published = vendor.publish(path)
        assert published["version"] == 41
        assert (tmp_path / "vendor" / "repository").joinpath(
            published["file"]
        ).read_bytes() == path.read_bytes()
        assert vendor.publish(releases / "new.fala", republish=True)["version"] == 42

    def test_a_release_is_published_once(self, tmp_path, vendor, releases):
        new, folder, keys = releases / "new.fala", vendor.folder, vendor.keys
        done("publish", folder, new, "--key", keys)
        add_version(tmp_path / "low.fala", Bundle.open(new), 1, "model")
        copy = done("repository", "show", folder)
        for release, told in (
            (releases / "old.fala", "as version 1 of model, and version 2 is the newest"),
            (new, "as version 2 of model, the newest one"),
            (tmp_path / "low.fala", "as version 2 of model, the newest one"),
        ):
            message = failed("publish", folder, release, "--key", keys)
            assert told in message and "--republish" in message, message
        assert done("repository", "show", folder) == copy
        low = failed("publish", folder, new, "--key", keys, "--version", 2, "--republish")
        assert "devices install only newer versions" in low
        vendor.delegate("model")  # its history moves with it
        failed("publish", folder, new, "--key", keys)
        again = done("publish", folder, tmp_path / "low.fala", "--key", keys, "--republish")
        assert again["version"] == 3

    def test_a_killed_beginning_begins_again(self, tmp_path):
        repo = tmp_path / "repo"
        works("repository", "begin", repo)
        (repo / "metadata" / "1.root.json").unlink()  # written last
        works("repository", "begin", repo)
        assert "not empty" in failed("repository", "begin", repo)

    def test_only_one_process_publishes(self, vendor, releases):
        with (
            repository.locked(vendor.folder),
            pytest.raises(ExportError, match="another process is publishing"),
        ):
            vendor.publish(releases / "new.fala")


def killed_at(point, work):
    """Work in a process that dies when its file of this number is about to get its name."""
    write, numbers = writing.write_atomically, itertools.count()

    def dying(path, fill):
        number = next(numbers)

        def filled(temporary):
            fill(temporary)
            if number == point:
                die()

        write(path, filled)

    def run(say):
        writing.write_atomically = publishing.write_atomically = dying
        work()

    return run_apart(run).killed


# Four files each, and the new key.
@pytest.mark.parametrize(("name", "files"), [("publish", 4), ("rotate", 5)])
def test_devices_accept_a_repository_killed_at_every_file(tmp_path, begun, releases, name, files):
    """Devices accept a repository at every stage, and the vendor resumes."""
    new = releases / "new.fala"
    with Device.create(tmp_path / "device", releases / "old.fala") as device:
        for point in range(files + 1):
            vendor = begun.copy(tmp_path / f"{point}")
            work = partial(vendor.publish, new) if name == "publish" else partial(
                vendor.rotate, "targets")  # fmt: skip
            assert killed_at(point, work) == (point < files)
            with FileServer(vendor.files()) as server:
                found = offered_version(device, server, vendor)
            # A release is published with its last file.
            whole = (name, point) == ("publish", files)
            assert found == ("2" if whole else "1"), point
            with pytest.raises(ExportError, match="already") if whole else nullcontext():
                vendor.publish(new)
            with FileServer(vendor.files()) as server:
                assert offered_version(device, server, vendor) == "2", point


def offered_version(device, server, vendor):
    """The version that a new device would install."""
    from fala.updates.client import Source, _target
    from fala.updates.fetcher import Fetcher
    from fala.updates.limits import UpdateLimits

    folder = vendor.folder.with_name(f"client-{vendor.folder.name}")
    (folder / "metadata").mkdir(parents=True, exist_ok=True)
    source = Source(server.address, vendor.root.read_bytes(), "model", lambda: None)
    target = _target(folder, source, Fetcher(source.url, UpdateLimits()), UpdateLimits())
    assert target.get_prefixed_paths()[0] in {
        path.removeprefix("targets/") for path in server.files
    }
    return str(target.custom["version"])
