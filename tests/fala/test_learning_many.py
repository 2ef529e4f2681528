"""A device that was fitted to very many examples adds a label without a fit of all of them."""

import shutil

import numpy as np
import pytest

import bridged
import word_releases
from devices import loss, sql
from fala.device import Device
from fala.personal.run import Budget
from word_releases import PERSONAL, PROBES, SHARED, TRUTH

pytestmark = pytest.mark.slow


RANDOM = np.random.default_rng(11)
#: More examples than the fit keeps in memory (the limit is lowered here): after opening, a label is
#: added beside a sample of them.
KEPT, COUNT = 500, 575
MANY = sorted({" ".join(RANDOM.choice(bridged.WORDS, size=6)) for _ in range(COUNT + 100)})
MANY = MANY[: COUNT + 10]
LABELS = word_releases.labels_of(MANY, SHARED, PERSONAL)


@pytest.fixture(scope="module", autouse=True)
def low_limits():
    with pytest.MonkeyPatch.context() as patch:
        for module in ("solver.fit", "solver.minimum"):
            patch.setattr(f"fala.{module}.LARGEST", KEPT)
        yield


@pytest.fixture(scope="module", params=[(), ("old",)], ids=["words", "embeddings alone"])
def fitted(tmp_path_factory, request):
    """The folder of a device that was fitted to many labels."""
    folder = tmp_path_factory.mktemp("fitted")
    releases = word_releases.write_releases(folder, silent=request.param)
    with Device.create(folder / "device", releases["old"]) as device:
        report = device.learn(MANY[:COUNT], LABELS[:COUNT])
        assert (report.fitted, report.decision) == (COUNT, "personal")
    return folder / "device", releases


@pytest.fixture
def path(fitted, tmp_path):
    return shutil.copytree(fitted[0], tmp_path / "device")


def test_very_many_labels_are_carried_to_a_new_release(path, fitted):
    with Device.open(path) as device:
        before = loss(device, TRUTH, PROBES)
        report = device.replace(fitted[1]["mid"], Budget(0))
        assert (report.decision, report.examples) == ("personal", COUNT)
        assert loss(device, TRUTH, PROBES) < before + 0.1


def test_a_label_after_opening_is_close_to_a_full_fit(path):
    further = list(range(COUNT, COUNT + 10))
    with Device.open(path) as device:
        before = device.predict_proba(MANY)
        reports = [device.learn([MANY[at]], [LABELS[at]]) for at in further]
        assert [report.exact for report in reports] == [False] * len(further)
        assert reports[-1].fitted == COUNT + 10
        after = device.predict_proba(MANY)
        device.fit()
        refitted = device.predict_proba(MANY)
    assert np.abs(after - before).max() > 1e-3
    distance = np.abs(refitted - after)[further].mean()
    assert distance < 0.7 * np.abs(refitted - before)[further].mean()


def test_a_label_changed_and_restored_after_opening_has_no_effect(path):
    with Device.open(path) as device:
        before = device.predict_proba(MANY)
        opposite = "1" if LABELS[3] == "0" else "0"
        assert not device.learn([MANY[3]], [opposite]).exact
        moved = np.abs(device.predict_proba(MANY) - before)
        assert moved[3].max() > max(1e-3, 3 * np.median(moved))
        device.learn([MANY[3]], [LABELS[3]])
        assert np.abs(device.predict_proba(MANY) - before).max() < moved.max() / 5


def test_remembered_examples_are_added_with_the_next(path):
    """Also those of another process; one that is not encoded waits."""
    with Device.open(path) as device, Device.open(path) as other:
        device.learn([MANY[COUNT]], [LABELS[COUNT]])
        other.remember([MANY[COUNT + 1]], [LABELS[COUNT + 1]])
        added = device.learn([MANY[COUNT + 2]], [LABELS[COUNT + 2]])
        encoded = 3 - added.waiting
        assert (added.exact, added.labelled, added.fitted) == (False, COUNT + 3, COUNT + encoded)
        # Encoded now, with the same label.
        added = device.learn([MANY[COUNT + 1]], [LABELS[COUNT + 1]])
        assert (added.exact, added.waiting, added.fitted) == (False, 0, COUNT + 3)
    with Device.open(path) as device:
        device.remember([MANY[COUNT]], ["1" if LABELS[COUNT] == "0" else "0"])
        before = device.predict_proba(MANY)
        assert not device.learn([MANY[COUNT + 3]], [LABELS[COUNT + 3]]).exact
        moved = np.abs(device.predict_proba(MANY) - before)
        assert moved[COUNT].max() > max(1e-3, 3 * np.median(moved))


def test_a_damaged_fit_record_causes_a_full_fit(path):
    for change in (
        "data = -1", "trust = 2", "scales = 'x'", "scales = x'00'", "scales = zeroblob(16)",
        "decision = NULL",
    ):  # fmt: skip
        sql(path, f"UPDATE slots SET fit_{change}")
        with Device.open(path) as device:
            assert device.learn([MANY[0]], [LABELS[0]]).exact


def test_another_process_adds_to_the_recorded_fit(path):
    with Device.open(path) as first, Device.open(path) as second:
        for at, device in enumerate((first, second, first), start=COUNT):
            report = device.learn([MANY[at]], [LABELS[at]])
            assert not report.exact
        assert report.labelled == COUNT + 3
