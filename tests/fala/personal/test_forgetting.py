"""A device that forgot is as one that never had the examples, and its disk is overwritten."""

import errno
import shutil
import time

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import embedded, left_of, refine_all, same, sql, state, vendor_of
from fala.device import Device
from fala.errors import DataError, DeviceError
from fala.examples import Match
from fala.personal.budget import Budget
from fala.testing import PowerCuts, counted, failing_disk

#: Probabilities of the two devices differ by less.
TOLERANCE = 1e-6
GONE = TEXTS[::9]
LATE = [f"{text} again" for text in TEXTS[:20]]


def assert_alike(device, other):
    for ours, theirs in zip(state(device), state(other), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


def both(tmp_path, release, live, examples=TEXTS, labels=None, gone=GONE):
    """A device that lives and then forgets, and one that lives without what is forgotten."""
    label_of = dict(zip(examples, labels, strict=True)).get
    with (
        Device.create(tmp_path / "forgot", release) as device,
        Device.create(tmp_path / "never", release) as other,
    ):
        live(device, lambda texts: texts, label_of)
        live(other, lambda texts: [text for text in texts if text not in gone], label_of)
        ids = [row.id for row in device.examples() if row.example in gone]
        assert device.forget(ids) == len(ids) > 0
        other.fit()
        assert_alike(device, other)
        yield device, other
        if device.can_roll_back:
            device.rollback()
            other.rollback()
            assert_alike(device, other)
            device.rollback()
            other.rollback()
            assert_alike(device, other)


def learn_labelled(device, texts, label):
    device.learn(texts, [label(text) for text in texts])


def learn(device, kept, label):
    learn_labelled(device, kept(TEXTS), label)


def replace_with(budget, whole=False, unlabelled=False):
    def live(device, kept, label, path):
        def label_or_none(text):
            return None if unlabelled and TEXTS.index(text) % 3 == 0 else label(text)

        learn_labelled(device, kept(TEXTS), label_or_none)
        device.replace(path, budget)
        if whole:
            refine_all(device)

    return live


def test_after_one_more_label(tmp_path, releases):
    """One label after the other is added to the last fit: what is forgotten was in both."""
    texts = [f"{one} {other}" for one in TEXTS[:20] for other in TEXTS[20:33]]
    labels = bridged.planted_labels(releases["old"], texts)

    def lived(device, kept, label):
        learn_labelled(device, kept(texts[:250]), label)
        for text in kept(texts[250:]):
            assert not device.learn([text], [label(text)]).exact

    gone = {*texts[::9], texts[-1], texts[-3]}
    for _ in both(tmp_path, releases["old"], lived, texts, labels, gone):
        pass


@pytest.mark.parametrize(
    ("bridges", "budget", "whole", "unlabelled"),
    [(True, Budget(0), False, True), (True, Budget(90), True, False),
     (False, Budget(200), False, True)],
    ids=["bridge", "refined", "no bridge"],
)  # fmt: skip
def test_after_a_replacement(tmp_path, labels, bridges, budget, whole, unlabelled):
    releases = bridged.write_releases(tmp_path, bridges=bridges)
    live = replace_with(budget, whole, unlabelled)

    def lived(device, kept, label):
        live(device, kept, label, releases["mid"])

    for device, _ in both(tmp_path, releases["old"], lived, labels=labels):
        teachers = sql(tmp_path / "forgot", "SELECT count(*) FROM logits")
        assert teachers == [(2 * (len(TEXTS) - len(GONE)),)]
        assert not device.model.is_vendor


def replaced(device, kept, label, releases):
    replace_with(Budget(0), unlabelled=True)(device, kept, label, releases["mid"])


def more_labels(device, kept, label, releases):
    replaced(device, kept, label, releases)
    for text in kept(LATE):
        learn_labelled(device, [text], lambda text: "1")


def rolled_back(device, kept, label, releases):
    replaced(device, kept, label, releases)
    device.rollback()
    learn_labelled(device, kept(LATE), lambda text: "0")


def fitted_to_none_of_them(device, kept, label, releases):
    """What was only kept has old logits of a model that was not fitted to it."""
    learn(device, lambda texts: kept(texts[:60]), label)
    late = kept(TEXTS[:10] + TEXTS[60:])
    device.remember(late, [None if TEXTS.index(text) % 2 else "1" for text in late])
    device.replace(releases["mid"], Budget(0))


def id_that_was_given_again(device, kept, label, releases):
    """The largest id is given again: what is kept under it came after the replacement."""
    replaced(device, kept, label, releases)
    device.rollback()
    device.forget(where=lambda row: row.example == TEXTS[-1])
    learn_labelled(device, kept(LATE), lambda text: None)
    device.rollback()


def first_backbone_gone(device, kept, label, releases):
    """Labels are enough; old logits of a backbone that is gone cannot be made again, and go."""
    learn(device, kept, label)
    device.replace(releases["mid"], Budget(0))
    device.replace(releases["new"], Budget(0))


@pytest.mark.parametrize(
    ("lived", "gone"),
    [
        (more_labels, {*GONE, *LATE[::3]}), (rolled_back, {*GONE, *LATE[::3]}),
        (fitted_to_none_of_them, GONE), (id_that_was_given_again, TEXTS[:9]),
        (first_backbone_gone, GONE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_after(tmp_path, releases, labels, lived, gone):
    def live(device, kept, label):
        lived(device, kept, label, releases)

    for _ in both(tmp_path, releases["old"], live, labels=labels, gone=gone):
        pass


def test_what_came_after_a_replacement_leaves_its_old_logits_alone(tmp_path, releases, labels):
    def lived(device, kept, label):
        replace_with(Budget(0), unlabelled=True)(device, kept, label, releases["mid"])
        learn_labelled(device, kept(LATE), lambda text: "1")

    folder, statement = tmp_path / "forgot", "SELECT model, value FROM logits ORDER BY 1, 2"
    for _ in both(tmp_path, releases["old"], lived, labels=labels, gone=LATE[:5]):
        logits = sql(folder, statement)
    assert logits == sql(tmp_path / "never", statement)


def test_after_labels_that_changed_since_a_replacement(tmp_path, releases, labels, monkeypatch):
    """Also by a clock that was an hour ahead until then."""

    def lived(device, kept, label):
        with monkeypatch.context() as patch:
            patch.setattr("time.time", lambda later=time.time: later() + 3600)
            replace_with(Budget(0), unlabelled=True)(device, kept, label, releases["mid"])
        for text in kept(TEXTS[1::7]):
            learn_labelled(device, [text], lambda text: "01"[label(text) == "0"])

    for _ in both(tmp_path, releases["old"], lived, labels=labels):
        pass
    kept = (
        "SELECT text, earlier.label FROM earlier_labels AS earlier"
        " JOIN examples ON examples.id = example JOIN texts ON texts.id = document ORDER BY 1"
    )
    assert sql(tmp_path / "forgot", kept) == sql(tmp_path / "never", kept) != []


def test_after_a_chain_old_logits_that_were_fitted_to_the_example_go(tmp_path, releases, labels):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, [None if at % 3 == 0 else one for at, one in enumerate(labels)])
        device.replace(releases["mid"], Budget(20))
        device.replace(releases["new"], Budget(20))
        before = {model for (model,) in sql(tmp_path / "device", "SELECT model FROM logits")}
        device.forget([2])
        after = {model for (model,) in sql(tmp_path / "device", "SELECT model FROM logits")}
        # The vendor's own logits may stay: they depend on no example.
        assert len(before & after) <= 1
        assert np.isfinite(device.predict(PROBES)).all()


def test_where_nothing_is_left_the_vendors_model_is_active(device, path, releases):
    device.replace(releases["mid"], Budget(10))
    assert device.forget([]) == device.forget([10_000]) == 0
    assert device.forget(where=lambda row: True) == len(TEXTS)
    assert [*device.examples()] == [] and embedded(path, releases["mid"]) == set()
    np.testing.assert_array_equal(device.predict(PROBES), vendor_of(releases["mid"]))
    device.rollback()
    assert device.model.is_vendor and device.threshold == 0


def test_matches(tmp_path):
    releases = bridged.write_releases(tmp_path, "matching")
    matches = list(dict.fromkeys(bridged.matches(texts=TEXTS)))
    labels = bridged.planted_labels(releases["old"], matches)

    def lived(device, kept, label):
        learn_labelled(device, kept(matches), label)
        device.replace(releases["mid"], Budget(200))

    gone = matches[::7]
    with (
        Device.create(tmp_path / "forgot", releases["old"]) as device,
        Device.create(tmp_path / "never", releases["old"]) as other,
    ):
        label_of = dict(zip(matches, labels, strict=True)).get
        lived(device, list, label_of)
        lived(other, lambda rows: [row for row in rows if row not in gone], label_of)
        assert device.forget(where=lambda row: row.example in gone) == len(gone)
        other.fit()
        probes = [Match((TEXTS[0], TEXTS[1]), text) for text in PROBES]
        for _ in range(2):
            np.testing.assert_allclose(
                device.predict(probes), other.predict(probes), atol=TOLERANCE
            )
            device.rollback()
            other.rollback()


# By a function, and on a disk that fails


def test_a_condition_that_fails_forgets_nothing(device):
    with pytest.raises(ZeroDivisionError):
        device.forget(where=lambda row: 1 // (row.id - 5))
    assert len([*device.examples()]) == len(TEXTS)


@pytest.mark.parametrize("arguments", [{}, {"ids": [1], "where": bool}, {"where": 5}])
def test_forget_takes_ids_or_a_function(device, arguments):
    with pytest.raises(DataError):
        device.forget(**arguments)
    assert len([*device.examples()]) == len(TEXTS)


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
        assert len([*device.examples()]) == len(TEXTS)
        assert same(state(device), before)
        assert device.forget([1]) == 1


@pytest.mark.parametrize("unsynced", ["kept", "lost"])
def test_a_killed_device_has_forgotten_all_of_them_or_none(path, tmp_path, unsynced):
    gone = TEXTS[:20]

    def forget(folder, say):
        with Device.open(folder) as device:
            say(device.forget(where=lambda row: row.example in gone))

    with Device.open(path) as device:
        before = state(device)
    with Device.open(shutil.copytree(path, tmp_path / "whole")) as device:
        device.forget(where=lambda row: row.example in gone)
        after = state(device)
    counts = []
    cuts = PowerCuts(forget, path, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "delete"}, unsynced=unsynced):
        with Device.open(cut.folder) as device:
            counts.append(len(list(device.examples())))
            assert same(state(device), before if counts[-1] == len(TEXTS) else after)
        assert counts[-1] == len(TEXTS) - 20 or not cut.said
        if counts[-1] < len(TEXTS):
            assert not left_of(cut.folder, gone)
    assert set(counts) == {len(TEXTS), len(TEXTS) - 20}
