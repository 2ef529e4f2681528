"""What a device tells: its state, its releases' names, and what an operation did and changes."""

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

import rated
import tagged
from bridged import PROBES, TEXTS
from bundles import repacked
from device_command import works
from fala.base.errors import (
    BundleDigestError,
    DataError,
    DeviceError,
    EncoderError,
    UnknownAdapterError,
)
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.personal.run import Budget
from fala.slots.installing import BUNDLES
from fala_export import write_external
from file_server import FileServer
from vendors import Vendor


def stored_in(path):
    """The bytes of all of a folder's files, but of SQLite's shared memory."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {file: file.read_bytes() for file in files if not file.name.endswith("-shm")}


def damage(path, release):
    """Damage an installed release."""
    file = path / BUNDLES / f"{Bundle.open(release).digest}.fala"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.unlink()
    file.write_bytes(data)


@pytest.fixture
def tagged_folder(tmp_path):
    """A device that has learned tags, and the next release."""
    releases = tagged.write_releases(tmp_path / "tags", ages=("old", "mid"))
    with Device.create(tmp_path / "tags" / "device", releases["old"]) as device:
        device.learn(tagged.TEXTS[:60], tagged.OWN[:60])
    return tmp_path / "tags" / "device", releases["mid"]


@pytest.fixture
def rated_folder(tmp_path):
    """A device that has learned ratings, and the next release."""
    releases = rated.write_releases(tmp_path / "stars")
    with Device.create(tmp_path / "stars" / "device", releases["old"]) as device:
        device.learn(rated.TEXTS[:30], rated.STARS[:30])
    return tmp_path / "stars" / "device", releases["mid"]


@pytest.fixture
def versions(tmp_path, releases):
    """Two releases of one name, which only the version tells apart."""
    files = []
    for version, age in enumerate(("old", "mid"), 1):
        files.append(tmp_path / f"comments-{version}.fala")
        details = {**Bundle.open(releases[age]).manifest.details, "version": version}
        files[-1].write_bytes(
            repacked(releases[age], name="comments", details={**details, "product": "comments"})
        )
    return files


def test_a_release_is_named_by_product_version_and_backbone(releases):
    manifest = Bundle.open(releases["old"]).manifest
    for details, title in (
        ({}, "minilm"),
        ({"version": 3}, "minilm v3"),
        ({"product": "comments"}, "comments (minilm)"),
        ({"product": "comments", "version": 3}, "comments v3 (minilm)"),
        ({"product": "minilm", "version": 3}, "minilm v3"),
    ):
        assert replace(manifest, name="minilm", details=details).title == title


def test_two_releases_of_one_name_are_told_apart(tmp_path, versions, labels):
    path, names = tmp_path / "device", ("comments v1", "comments v2")
    with Device.create(path, versions[0]) as device:
        assert (device.status().product, device.status().version) == ("comments", 1)
        device.learn(TEXTS, labels)
        preview = device.preview(versions[1], Budget(0))
        report = device.replace(versions[1], Budget(0))
        assert (preview.old, preview.new) == (report.old, report.new) == names
        assert (device.status().previous, device.status().release) == names
        assert device.refine(Budget(3)).new == names[1]
        both = device.compare(PROBES[:3])
        assert (both.old, both.new) == names
    lines = works("doctor", path).output.splitlines()
    assert f"active: {names[1]}" in lines
    assert works("rollback", path).output == f"{names[1]} -> {names[0]}\n"


class TestStatus:
    def test_it_has_the_state_of_a_task(self, tmp_path, releases, labels):
        with Device.create(tmp_path / "device", releases["old"], positive="0") as device:
            status = device.status()
            assert (status.release, status.previous, status.can_roll_back) == ("old", None, False)
            assert (status.decision, status.on_trial, status.fell_back) == ("vendor", False, None)
            device.remember(["no label yet", *TEXTS[:5]], [None, *labels[:5]])
            status = device.status()
            assert (status.examples, status.labelled) == (6, 5)
            assert (status.task, status.labels, status.positive) == (
                "classification", device.labels, "0",
            )  # fmt: skip
            with pytest.raises(FrozenInstanceError):
                status.examples = 7
            with pytest.raises(UnknownAdapterError):
                device.status(adapter="none")
            assert json.loads(json.dumps(status.to_dict()))["labels"] == [*device.labels]

    def test_waiting_are_the_texts_that_refine_encodes(self, device, unbridged, plain, encoded):
        report = device.replace(unbridged["mid"], Budget(7))
        assert 0 < report.waiting == device.status().waiting < len(TEXTS)
        waiting = device.status().waiting
        report = device.refine(Budget(4))
        assert device.status().waiting == report.waiting == waiting - 4
        device.rollback()
        report = device.replace(plain["mid"], Budget(0))  # over a bridge
        assert report.waiting == device.status().waiting == 0

    def test_reading_never_writes_and_leaves_a_failed_trial_to_operations(
        self, device, path, releases
    ):
        with Device.open(path) as other:
            other.replace(releases["mid"], Budget(0))
        damage(path, releases["mid"])
        before = stored_in(path)
        assert " on old with " in repr(device)  # as this object knows it
        with pytest.raises(BundleDigestError):
            device.status()
        assert stored_in(path) == before
        assert np.isfinite(device.predict_proba(PROBES)).all()
        status = device.status()
        assert (status.release, status.on_trial, status.can_roll_back) == ("old", False, False)
        assert status.fell_back

    def test_repr_never_raises(self, device, path, releases):
        with Device.open(path) as other:
            other.replace(releases["mid"], Budget(0))
            other.confirm()
        damage(path, releases["mid"])
        assert " on old with the personal model" in repr(device)
        with pytest.raises(BundleDigestError):
            device.predict(PROBES)
        assert " on old with the personal model" in repr(device)
        (path / "store.sqlite3").unlink()
        assert " on old with the personal model" in repr(device)
        for _ in range(2):
            device.close()
        assert "is closed" in repr(device)
        for call in (lambda: device.labels, device.status, lambda: device.predict(PROBES)):
            with pytest.raises(DeviceError, match=r"this device is closed; .* fala\.Device\.open"):
                call()

    def test_rolled_back_is_what_update_skips(self, device, releases):
        device.replace(releases["mid"], Budget(0))
        assert not device.status().rolled_back
        device.rollback()
        assert device.status().rolled_back
        device.rollback()
        assert not device.status().rolled_back
        device.replace(releases["new"], Budget(0))
        assert not device.status().rolled_back


class TestChanges:
    def test_they_are_counted_on_left_out_examples(self, tmp_path, releases, labels):
        """A device that never had an example decides it as left out."""
        texts, own = TEXTS[:24], [*labels[:24]]
        own[::5] = ["1" if label == "0" else "0" for label in own[::5]]
        wrong = {"old": [], "vendor": [], "new": []}
        for place, text in enumerate(texts):
            rest = [texts[:place] + texts[place + 1 :], own[:place] + own[place + 1 :]]
            with Device.create(tmp_path / f"{place}", releases["old"]) as device:
                device.learn(*rest)
                wrong["old"].append(device.predict([text])[0] != own[place])
                device.replace(releases["mid"], Budget(0))
                wrong["new"].append(device.predict([text])[0] != own[place])
        with Device.create(tmp_path / "vendor", releases["mid"]) as device:
            wrong["vendor"] = device.predict(texts) != np.array(own)
        with Device.create(tmp_path / "device", releases["old"]) as device:
            device.learn(texts, own)
            preview = device.preview(releases["mid"], Budget(0))
            changes = device.replace(releases["mid"], Budget(0)).changes
            ids = {row.id: texts.index(row.example) for row in device.examples()}
        assert preview.changes == changes
        assert (changes.examples, changes.estimated, changes.measure) == (24, 24, "error rate")
        assert changes.vendor == pytest.approx(100 * np.mean(wrong["vendor"]))
        # Left out by a step of the fit's mathematics, not by a fit.
        assert changes.old == pytest.approx(100 * np.mean(wrong["old"]), abs=100 / 24)
        assert changes.new == pytest.approx(100 * np.mean(wrong["new"]), abs=100 / 24)
        flips = [ids[row] for row in changes.negative_flips]
        close = sum(wrong["new"][place] and not wrong["old"][place] for place in flips)
        assert len(flips) - close <= 1
        more = changes.right_before_wrong_now - changes.wrong_before_right_now
        assert changes.new - changes.old == pytest.approx(100 * more / 24)

    def test_a_refinement_says_how_many_are_estimated(self, device, releases):
        device.replace(releases["mid"], Budget(0))
        changes = device.refine(Budget(30)).changes
        assert (changes.examples, changes.estimated) == (len(TEXTS), len(TEXTS) - 30)
        assert device.refine(Budget(100)).changes.estimated < len(TEXTS) - 30

    def test_without_a_label_there_are_none(self, tmp_path, releases):
        with Device.create(tmp_path / "device", releases["old"]) as device:
            device.remember(TEXTS[:20])
            report = device.replace(releases["mid"], Budget(5))
            assert report.changes is None and report.to_dict()["changes"] is None
            assert device.refine(Budget(5)).changes is None

    def test_tags_are_wrong_where_the_set_differs(self, tagged_folder):
        folder, release = tagged_folder
        with Device.create(folder.parent / "vendor", release) as vendor:
            decided = vendor.predict(tagged.TEXTS[:60])
        with Device.open(folder) as device:
            changes = device.replace(release, Budget(100)).changes
        wrong = [set(own) != set(one) for own, one in zip(tagged.OWN, decided, strict=False)]
        assert changes.vendor == pytest.approx(100 * np.mean(wrong)) and changes.examples == 60

    def test_ratings_have_an_error_and_no_flips(self, rated_folder):
        folder, release = rated_folder
        with Device.create(folder.parent / "vendor", release) as vendor:
            error = rated.rmse(vendor.predict(rated.TEXTS[:30]), rated.STARS[:30])
        with Device.open(folder) as device:
            changes = device.replace(release, Budget(100)).changes
        assert changes.measure == "rmse" and changes.vendor == pytest.approx(error, rel=1e-3)
        assert changes.negative_flips is changes.right_before_wrong_now is None


class TestSideBySide:
    def test_both_models_decide(self, device, releases):
        before = device.predict(PROBES), device.predict_proba(PROBES)
        device.replace(releases["mid"], Budget(0))
        for _ in range(3):  # they do not count as predictions, of which 100 end a trial
            both = device.compare(PROBES)
        assert device.status().on_trial
        assert both.before.tolist() == before[0].tolist()
        np.testing.assert_array_equal(both.proba_before, before[1])
        assert both.now.tolist() == device.predict(PROBES).tolist()
        np.testing.assert_array_equal(both.proba_now, device.predict_proba(PROBES))
        assert both.differ.tolist() == (both.before != both.now).tolist() and both.differ.any()
        values = json.loads(json.dumps(both.to_dict()))
        assert values["now"] == both.now.tolist() and values["differ"] == both.differ.tolist()
        device.rollback()
        back = device.compare(PROBES)
        assert (back.old, back.new) == ("mid", "old") and back.now.tolist() == before[0].tolist()
        assert device.compare([]).differ.shape == (0,)

    def test_without_another_model_it_is_an_error(self, device, path, releases):
        with pytest.raises(DeviceError, match="no earlier model is kept"):
            device.compare(PROBES)
        device.replace(releases["mid"], Budget(0))
        before = device.predict_proba(PROBES)
        with pytest.raises(DataError):
            device.compare([1])
        damage(path, releases["old"])
        with (
            Device.open(path) as again,
            pytest.raises(DeviceError, match="the previous model is damaged"),
        ):
            again.compare(PROBES)
        np.testing.assert_array_equal(device.predict_proba(PROBES), before)

    def test_an_encoder_that_is_not_there_is_an_error(self, tmp_path, releases, labels):
        encode = Bundle.open(releases["old"]).backbone().encode
        head = Bundle.open(releases["old"]).head()
        probes = dict(zip(PROBES[:16], encode(PROBES[:16]), strict=True))
        write_external(tmp_path / "app.fala", "cloud", "1", head, probes)
        path = tmp_path / "device"
        with Device.create(path, tmp_path / "app.fala", encoder=encode) as device:
            device.learn(TEXTS, labels)
            before = device.predict(PROBES)
            device.replace(releases["mid"], Budget(20))
            assert device.compare(PROBES).before.tolist() == before.tolist()
        with Device.open(path) as device:
            with pytest.raises(EncoderError, match="pass its function as encoder="):
                device.compare(PROBES)
            assert device.status().on_trial  # it is no fault of the release on trial

    def test_tags_and_ratings_differ_as_sets_and_in_steps_of_the_noise(
        self, tagged_folder, rated_folder
    ):
        both = []
        for (folder, release), probes in (
            (tagged_folder, tagged.PROBES), (rated_folder, rated.PROBES),
        ):  # fmt: skip
            with Device.open(folder) as device:
                device.replace(release, Budget(0))
                both.append(device.compare(probes))
        tags, stars = both
        pairs = zip(tags.before, tags.now, strict=True)
        assert tags.differ.tolist() == [before != now for before, now in pairs]
        json.dumps(tags.to_dict())
        assert stars.proba_before is stars.proba_now is None
        assert stars.differ.tolist() == (np.abs(stars.now - stars.before) > 0.4).tolist()


def test_a_rollback_says_what_it_did(device, releases):
    device.learn(["one more", "and another"], ["1", None])
    device.replace(releases["mid"], Budget(0))
    back = device.rollback()
    assert (back.old, back.new, back.decision) == ("mid", "old", "personal")
    assert (back.examples, back.labelled, back.refitted) == (92, 91, False)
    device.learn(["a later one"], ["0"])
    forth = device.rollback()
    assert forth.refitted and forth.on_trial and forth.labelled == 92


def test_update_says_why_it_skips(tmp_path, versions):
    vendor = Vendor(tmp_path / "vendor")
    vendor.publish(versions[1], product="comments")
    path = tmp_path / "device"
    Device.create(path, versions[0]).close()
    with FileServer(vendor.files()) as server:
        command = ("update", path, server.address, "--root", vendor.root)
        assert works(*command).stdout.startswith("comments v1 -> comments v2: ")
        assert works(*command).stdout == "comments v2: no newer release\n"
        works("rollback", path)
        assert works(*command).stdout == "comments v2: skipped, because you rolled it back\n"


def test_an_unreadable_previous_release_has_no_name(device, path, releases):
    device.replace(releases["mid"], Budget(0))
    device.confirm()
    damage(path, releases["old"])
    with Device.open(path) as again:
        status = again.status()
        assert status.can_roll_back and status.previous is None
