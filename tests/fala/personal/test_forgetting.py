"""After ``forget`` or ``unlabel`` a device equals one that never had the examples or labels."""

import errno
import shutil
import time
from itertools import product

import numpy as np
import pytest

import bridged
import fala
import rated
import tagged
from bridged import GONE, LATE, PROBES, TEXTS
from devices import assert_close, embedded, left_of, refine_all, same, sql, state, vendor_of
from fala import Budget, DataError, Device, DeviceError, Forgotten, Item, Match, Stopped
from fala.testing import PowerCuts, counted, failing_disk


@pytest.fixture(params=["forget", "unlabel"])
def operation(request):
    return request.param


def rows_of(device):
    return {row.example: row.label for row in device.examples()}


def teacher(device, gone=(), operation=None):
    """Return a function that teaches a device without the examples, or labels, that are gone."""

    def teach(texts, labels, learn=device.learn):
        rows = [
            (text, None if operation and text in gone else label)
            for text, label in zip(texts, labels, strict=True)
            if operation != "forget" or text not in gone
        ]
        if rows:
            learn(*zip(*rows, strict=True))

    return teach


LABELS_THEN = (
    "SELECT text, earlier.label FROM earlier_labels AS earlier"
    " JOIN examples ON examples.id = example JOIN texts ON texts.id = document ORDER BY 1, 2"
)
FITS = "SELECT name, fit_examples FROM slots ORDER BY 1"


def model_of(device):
    """Return the arrays of a device's active model."""
    model = device.model
    parts = (model.weight, model.bias, model.lexical)
    return [part for part in parts if part is not None]


def twins(folder, release, operation, act, gone=GONE):
    """Yield a device that loses some examples or labels, beside one that never had them."""
    with (
        Device.create(folder / "changed", release) as device,
        Device.create(folder / "never", release) as reference,
    ):
        act(device, teacher(device))
        act(reference, teacher(reference, gone, operation))
        assert rows_of(device) != rows_of(reference)
        getattr(device, operation)(gone)
        reference.fit()
        assert device.status() == reference.status()
        assert rows_of(device) == rows_of(reference)
        for query in (LABELS_THEN, FITS):
            assert sql(folder / "changed", query) == sql(folder / "never", query)
        assert_close(model_of(device), model_of(reference))
        yield device
        for _ in range(2 * device.status().can_roll_back):
            device.rollback()
            reference.rollback()
            assert_close(model_of(device), model_of(reference))


class Acts:
    """What a user did before: each act teaches, with the releases and the user's labels."""

    def __init__(self, releases, labels):
        self.releases, self.labels = releases, labels
        self.others = ["10"[int(label)] for label in labels]

    def learned(self, device, teach):
        teach(TEXTS, self.labels)

    def relabelled(self, device, teach):
        self.learned(device, teach)
        teach(GONE, ["1"] * len(GONE))
        teach(GONE[:4], ["0"] * 4)

    def replaced(self, device, teach):
        """Teach every second text without a label, so that old logits are fitted to."""
        teach(TEXTS, [label if at % 2 else None for at, label in enumerate(self.labels)])
        device.replace(self.releases["mid"], Budget(0))

    def encoded(self, device, teach):
        """Replace without a bridge, so that the new backbone encodes all texts."""
        teach(TEXTS, [label if at % 2 else None for at, label in enumerate(self.labels)])
        device.replace(self.releases["unbridged"], Budget(200))

    def refined(self, device, teach):
        self.learned(device, teach)
        device.replace(self.releases["mid"], Budget(90))
        refine_all(device)

    def continued(self, device, teach):
        """Teach one text at a time, some of them with another label than the old model had."""
        self.replaced(device, teach)
        for text in LATE:
            teach([text], ["1"])
        for text, label in [*zip(TEXTS, self.others, strict=True)][::7]:
            teach([text], [label])

    def rolled_back(self, device, teach):
        self.replaced(device, teach)
        device.rollback()
        teach([*LATE, *GONE[:3]], ["0"] * len(LATE) + ["1"] * 3)

    def remembered(self, device, teach):
        """Replace by old logits of a model that was not fitted to all the examples."""
        teach(TEXTS[:60], self.labels[:60])
        late = TEXTS[:10] + TEXTS[60:]
        teach(late, [None if TEXTS.index(text) % 2 else "1" for text in late], device.remember)
        device.replace(self.releases["mid"], Budget(0))

    def with_an_id_again(self, device, teach):
        """Use the largest id again, for an example that came after the replacement."""
        self.replaced(device, teach)
        device.rollback()
        device.forget(where=lambda row: row.example == TEXTS[-1])
        teach(LATE, [None] * len(LATE))
        device.rollback()

    def replaced_twice(self, device, teach):
        """Replace twice, which drops old logits of a backbone that is deleted."""
        self.learned(device, teach)
        device.replace(self.releases["mid"], Budget(0))
        device.replace(self.releases["new"], Budget(0))

    def added_one_by_one(self, device, teach):
        """Teach some of what is gone by the first fit, and add some to it."""
        labels = bridged.planted_labels(self.releases["old"], MANY)
        teach(MANY[:250], labels[:250])
        for row in zip(MANY[250:], labels[250:], strict=True):
            teach(*([each] for each in row))

    def with_a_clock_that_was_an_hour_ahead(self, device, teach):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("time.time", lambda later=time.time: later() + 3600)
            self.replaced(device, teach)
        for text in TEXTS[1::7]:
            teach([text], ["0"])


ACTS = (
    "relabelled", "encoded", "refined", "continued", "rolled_back", "remembered",
    "with_an_id_again", "added_one_by_one", "with_a_clock_that_was_an_hour_ahead",
)  # fmt: skip
MANY = [f"{first} {second}" for first in TEXTS[:20] for second in TEXTS[20:33]]
#: The texts that a test forgets after an act; after every other act they are ``GONE``.
GONE_AFTER = {
    "continued": [*GONE, *LATE[::3]], "rolled_back": [*GONE, *LATE[::3]],
    "added_one_by_one": [*MANY[::9], MANY[-3], MANY[-1]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "act"), [*product(["forget", "unlabel"], ACTS), ("forget", "replaced_twice")]
)
def test_a_device_equals_one_that_never_had_it(
    tmp_path, releases, unbridged, labels, operation, act
):
    acts = Acts({**releases, "unbridged": unbridged["mid"]}, labels)
    gone = GONE_AFTER.get(act, GONE)
    for device in twins(tmp_path, releases["old"], operation, getattr(acts, act), gone):
        if operation == "forget" and act in {"encoded", "refined"}:
            (count,) = sql(tmp_path / "changed", "SELECT count(*) FROM logits")
            assert count == (len(TEXTS) - len(GONE),) and not device.model.is_vendor
        if "clock" in act:
            assert sql(tmp_path / "changed", LABELS_THEN) != []


def test_what_came_later_leaves_old_logits(tmp_path, releases, labels, operation):
    query = "SELECT model, value FROM logits ORDER BY 1, 2"
    with Device.create(tmp_path / "device", releases["old"]) as device:
        Acts(releases, labels).replaced(device, teacher(device))
        before = sql(tmp_path / "device", query)
        device.learn([*LATE, *TEXTS[:1]], ["1"] * (len(LATE) + 1))  # without a label before
        getattr(device, operation)(LATE)
        if operation == "unlabel":
            device.unlabel(TEXTS[:1])
        assert sql(tmp_path / "device", query) == before != []
        getattr(device, operation)(TEXTS[1:2])
        assert sql(tmp_path / "device", query) != before


def test_a_chain_drops_old_logits_that_were_fitted_to_it(tmp_path, releases, labels, operation):
    query = "SELECT teacher FROM slots"
    with Device.create(tmp_path / "device", releases["old"]) as device:
        Acts(releases, labels).replaced(device, teacher(device))
        device.replace(releases["new"], Budget(20))
        before = {*sql(tmp_path / "device", query)}
        getattr(device, operation)(TEXTS[1:2])
        after = {*sql(tmp_path / "device", query)}
        # The first backbone is gone, so nothing takes the place of its logits.
        assert (None,) in after - before and not before & after
        assert np.isfinite(device.predict_proba(PROBES)).all()


def test_without_anything_the_vendors_model_is_active(device, path, releases, operation):
    device.replace(releases["mid"], Budget(10))
    getattr(device, operation)(TEXTS)
    assert device.model.is_vendor and device.fit().decision == "vendor"
    assert device.refine(Budget(5)).stopped is Stopped.NO_LABEL
    np.testing.assert_array_equal(device.predict_proba(PROBES), vendor_of(releases["mid"]))
    assert len(rows_of(device)) == len(TEXTS) * (operation == "unlabel")
    assert (embedded(path, releases["mid"]) == set()) == (operation == "forget")
    device.rollback()
    assert device.model.is_vendor and device.learn(TEXTS[:1], ["1"]).labelled == 1


# Which examples


def test_unknown_examples_and_those_without_a_label_are_ignored(device):
    device.remember(["no label yet"])
    device.fit()
    before, kept = state(device), rows_of(device)
    assert device.forget([]) == device.forget([10_000]) == Forgotten(0, overwritten=True)
    report = device.unlabel(["never seen", "no label yet"])
    assert (report.examples, report.labelled) == (len(TEXTS) + 1, len(TEXTS))
    assert device.unlabel(iter([])).labelled == len(TEXTS)
    assert same(state(device), before) and rows_of(device) == kept


def test_what_is_wrong_or_fails_forgets_nothing(device):
    for operation in (device.forget, device.unlabel):
        with pytest.raises(DataError):
            operation([Match((), "a")])
        with pytest.raises(fala.UnknownAdapterError):
            operation(TEXTS, adapter="none")
    for arguments in ({}, {"examples": [1], "where": bool}, {"where": 5}):
        with pytest.raises(DataError):
            device.forget(**arguments)
    with pytest.raises(ZeroDivisionError):
        device.forget(where=lambda row: 1 // (row.id - 5))
    assert len(rows_of(device)) == len(TEXTS) and None not in rows_of(device).values()


def test_items_are_known_by_their_keys(tmp_path, operation):
    vectors = np.random.default_rng(0).normal(size=(40, 4))
    items = [Item(f"{row}.jpg", vector) for row, vector in enumerate(vectors)]
    with Device.create(tmp_path / "items", labels=[0, 1], dimension=4) as device:
        device.learn(items, (vectors[:, 0] > 0).astype(int))
        for examples, left in ((items[:5], 35), (["7.jpg"], 34)):
            getattr(device, operation)(examples)
            assert device.status().labelled == left


def kind_of_examples(kind, folder):
    """Return releases of another kind of examples or labels, with examples and their labels."""
    if kind == "tags":
        return tagged.write_releases(folder), tagged.TEXTS[:60], tagged.OWN[:60]
    if kind == "ratings":
        return rated.write_releases(folder), rated.TEXTS[:60], rated.STARS[:60].tolist()
    releases = bridged.write_releases(folder, "matching")
    examples = list(dict.fromkeys(bridged.matches(texts=TEXTS)))
    return releases, examples, bridged.planted_labels(releases["old"], examples)


@pytest.mark.parametrize(
    ("kind", "operation"), [("matches", "forget"), ("tags", "unlabel"), ("ratings", "forget")]
)
def test_other_kinds_of_examples_and_labels(tmp_path, kind, operation):
    releases, examples, labels = kind_of_examples(kind, tmp_path / "releases")

    def act(device, teach):
        teach(examples, labels)
        device.replace(releases["mid"], Budget(0))

    for device in twins(tmp_path, releases["old"], operation, act, examples[::7]):
        assert not device.model.is_vendor


# Overwriting, full disks and kills


def test_no_byte_of_a_label_is_left(tmp_path):
    """The test counts unmistakable labels, which changed and were fitted to, in the files."""
    names = ("unmistakable-one", "unmistakable-two", "unmistakable-three")
    releases = bridged.write_releases(tmp_path, labels=names)

    def found(folder):
        data = b"".join(file.read_bytes() for file in sorted(folder.glob("store*")))
        return [data.count(name.encode()) for name in names]

    counts = []
    for name in ("withdrawn", "never"):
        folder = tmp_path / name
        with Device.create(folder, releases["old"]) as device:
            device.learn(TEXTS, [names[at % 2] if at % 9 else None for at in range(len(TEXTS))])
            device.remember(GONE)
            if name == "withdrawn":
                device.learn(GONE, [names[2]] * len(GONE))
            device.replace(releases["mid"], Budget(0))
            if name == "withdrawn":
                device.learn(GONE, [names[0]] * len(GONE))
                assert found(folder)[2] > 1
                device.unlabel(GONE)
            assert device.forget([]).overwritten
        counts.append(found(folder))
    assert counts[0] == counts[1]


def test_forgetting_on_a_full_disk_forgets_nothing(path):
    with counted(path) as operations, Device.open(path) as device:
        before = state(device)
        opening = len(operations)
    full = failing_disk(path, opening + 2, errno.ENOSPC)
    with full as fault, Device.open(path) as device:
        assert same(state(device), before)
        with pytest.raises(DeviceError):
            device.forget([1, 2, 3])
        assert fault.failed and same(state(device), before)
    with Device.open(path) as device:
        assert len(rows_of(device)) == len(TEXTS) and same(state(device), before)
        assert device.forget([1]).count == 1


@pytest.mark.parametrize(
    ("operation", "unsynced"), [("forget", "kept"), ("forget", "lost"), ("unlabel", "kept")]
)
def test_a_killed_process_has_done_all_or_nothing(path, tmp_path, operation, unsynced):
    gone = TEXTS[:20]

    def act(folder, say):
        with Device.open(folder) as device:
            getattr(device, operation)(gone)
            say("done")

    with Device.open(path) as device:
        before = state(device)
    with Device.open(shutil.copytree(path, tmp_path / "whole")) as device:
        getattr(device, operation)(gone)
        after = state(device)
    counts = []
    cuts = PowerCuts(act, path, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "delete"}, unsynced=unsynced):
        with Device.open(cut.folder) as device:
            counts.append(device.status().labelled)
            assert same(state(device), before if counts[-1] == len(TEXTS) else after)
        assert counts[-1] == len(TEXTS) - 20 or not cut.said
        if counts[-1] < len(TEXTS):
            assert bool(left_of(cut.folder, gone)) == (operation == "unlabel")
    assert set(counts) == {len(TEXTS), len(TEXTS) - 20}
