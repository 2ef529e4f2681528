"""After ``forget`` a device equals one that never had the examples; its disk is overwritten."""

import errno
import shutil
import time

import numpy as np
import pytest

import bridged
from bridged import GONE, LATE, PROBES, TEXTS
from devices import (
    TOLERANCE,
    assert_alike,
    embedded,
    left_of,
    refine_all,
    same,
    sql,
    state,
    vendor_of,
)
from fala.base.errors import DataError, DeviceError
from fala.base.examples import Match
from fala.device import Device
from fala.personal.run import Budget
from fala.report import Forgotten
from fala.testing import PowerCuts, counted, failing_disk


def both(tmp_path, release, act, examples=TEXTS, labels=None, forgotten=GONE):
    """A device that forgets examples at the end, and one that never had them."""
    label_of = dict(zip(examples, labels, strict=True)).get
    with (
        Device.create(tmp_path / "forgot", release) as device,
        Device.create(tmp_path / "never", release) as reference,
    ):
        act(device, lambda texts: texts, label_of)
        act(reference, lambda texts: [text for text in texts if text not in forgotten], label_of)
        ids = [row.id for row in device.examples() if row.example in forgotten]
        assert device.forget(ids).count == len(ids) > 0
        reference.fit()
        assert_alike(device, reference)
        yield device, reference
        if device.status().can_roll_back:
            device.rollback()
            reference.rollback()
            assert_alike(device, reference)
            device.rollback()
            reference.rollback()
            assert_alike(device, reference)


def learn_labelled(device, texts, label):
    device.learn(texts, [label(text) for text in texts])


def learn(device, keep, label):
    learn_labelled(device, keep(TEXTS), label)


def replace_with(budget, whole=False, unlabelled=False):
    def act(device, keep, label, path):
        def label_or_none(text):
            return None if unlabelled and TEXTS.index(text) % 3 == 0 else label(text)

        learn_labelled(device, keep(TEXTS), label_or_none)
        device.replace(path, budget)
        if whole:
            refine_all(device)

    return act


def test_forget_after_one_more_label(tmp_path, releases):
    """Labels are added to the last fit one by one; forgotten examples are of both kinds."""
    texts = [f"{first} {second}" for first in TEXTS[:20] for second in TEXTS[20:33]]
    labels = bridged.planted_labels(releases["old"], texts)

    def act(device, keep, label):
        learn_labelled(device, keep(texts[:250]), label)
        for text in keep(texts[250:]):
            assert not device.learn([text], [label(text)]).exact

    forgotten = {*texts[::9], texts[-1], texts[-3]}
    for _ in both(tmp_path, releases["old"], act, texts, labels, forgotten):
        pass


@pytest.mark.parametrize(
    ("bridges", "budget", "whole", "unlabelled"),
    [(True, Budget(0), False, True), (True, Budget(90), True, False),
     (False, Budget(200), False, True)],
    ids=["bridge", "refined", "no bridge"],
)  # fmt: skip
def test_forget_after_a_replacement(tmp_path, labels, bridges, budget, whole, unlabelled):
    releases = bridged.write_releases(tmp_path, bridges=bridges)
    replace = replace_with(budget, whole, unlabelled)

    def act(device, keep, label):
        replace(device, keep, label, releases["mid"])

    for device, _ in both(tmp_path, releases["old"], act, labels=labels):
        teachers = sql(tmp_path / "forgot", "SELECT count(*) FROM logits")
        assert teachers == [(2 * (len(TEXTS) - len(GONE)),)]
        assert not device.model.is_vendor


def replace_once(device, keep, label, releases):
    replace_with(Budget(0), unlabelled=True)(device, keep, label, releases["mid"])


def replace_and_learn(device, keep, label, releases):
    replace_once(device, keep, label, releases)
    for text in keep(LATE):
        learn_labelled(device, [text], lambda text: "1")


def replace_and_roll_back(device, keep, label, releases):
    replace_once(device, keep, label, releases)
    device.rollback()
    learn_labelled(device, keep(LATE), lambda text: "0")


def fit_other_examples(device, keep, label, releases):
    """Remembered examples have old logits of a model that was not fitted to them."""
    learn(device, lambda texts: keep(texts[:60]), label)
    late = keep(TEXTS[:10] + TEXTS[60:])
    device.remember(late, [None if TEXTS.index(text) % 2 else "1" for text in late])
    device.replace(releases["mid"], Budget(0))


def reuse_an_id(device, keep, label, releases):
    """The largest id is used again, for an example that came after the replacement."""
    replace_once(device, keep, label, releases)
    device.rollback()
    device.forget(where=lambda row: row.example == TEXTS[-1])
    learn_labelled(device, keep(LATE), lambda text: None)
    device.rollback()


def replace_twice(device, keep, label, releases):
    """Old logits of a deleted backbone cannot be computed again: they are dropped."""
    learn(device, keep, label)
    device.replace(releases["mid"], Budget(0))
    device.replace(releases["new"], Budget(0))


@pytest.mark.parametrize(
    ("change", "forgotten"),
    [
        (replace_and_learn, {*GONE, *LATE[::3]}), (replace_and_roll_back, {*GONE, *LATE[::3]}),
        (fit_other_examples, GONE), (reuse_an_id, TEXTS[:9]),
        (replace_twice, GONE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_forget_after_several_changes(tmp_path, releases, labels, change, forgotten):
    def act(device, keep, label):
        change(device, keep, label, releases)

    for _ in both(tmp_path, releases["old"], act, labels=labels, forgotten=forgotten):
        pass


def test_forgetting_later_examples_keeps_old_logits(tmp_path, releases, labels):
    def act(device, keep, label):
        replace_with(Budget(0), unlabelled=True)(device, keep, label, releases["mid"])
        learn_labelled(device, keep(LATE), lambda text: "1")

    folder, statement = tmp_path / "forgot", "SELECT model, value FROM logits ORDER BY 1, 2"
    for _ in both(tmp_path, releases["old"], act, labels=labels, forgotten=LATE[:5]):
        logits = sql(folder, statement)
    assert logits == sql(tmp_path / "never", statement)


def test_forget_after_labels_changed_since_a_replacement(tmp_path, releases, labels, monkeypatch):
    """The clock is an hour ahead until the replacement."""

    def act(device, keep, label):
        with monkeypatch.context() as patch:
            patch.setattr("time.time", lambda later=time.time: later() + 3600)
            replace_with(Budget(0), unlabelled=True)(device, keep, label, releases["mid"])
        for text in keep(TEXTS[1::7]):
            learn_labelled(device, [text], lambda text: "01"[label(text) == "0"])

    for _ in both(tmp_path, releases["old"], act, labels=labels):
        pass
    query = (
        "SELECT text, earlier.label FROM earlier_labels AS earlier"
        " JOIN examples ON examples.id = example JOIN texts ON texts.id = document ORDER BY 1"
    )
    assert sql(tmp_path / "forgot", query) == sql(tmp_path / "never", query) != []


def test_forget_after_a_chain_drops_old_logits_fitted_to_the_example(tmp_path, releases, labels):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, [None if i % 3 == 0 else label for i, label in enumerate(labels)])
        device.replace(releases["mid"], Budget(20))
        device.replace(releases["new"], Budget(20))
        before = {model for (model,) in sql(tmp_path / "device", "SELECT model FROM logits")}
        device.forget([2])
        after = {model for (model,) in sql(tmp_path / "device", "SELECT model FROM logits")}
        # The vendor's own logits may stay: they depend on no example.
        assert len(before & after) <= 1
        assert np.isfinite(device.predict_proba(PROBES)).all()


def test_forgetting_everything_activates_the_vendors_model(device, path, releases):
    device.replace(releases["mid"], Budget(10))
    assert device.forget([]) == device.forget([10_000]) == Forgotten(0, overwritten=True)
    assert device.forget(where=lambda row: True).count == len(TEXTS)
    assert [*device.examples()] == [] and embedded(path, releases["mid"]) == set()
    np.testing.assert_array_equal(device.predict_proba(PROBES), vendor_of(releases["mid"]))
    device.rollback()
    assert device.model.is_vendor


def test_forget_matches(tmp_path):
    releases = bridged.write_releases(tmp_path, "matching")
    matches = list(dict.fromkeys(bridged.matches(texts=TEXTS)))
    labels = bridged.planted_labels(releases["old"], matches)

    def act(device, keep, label):
        learn_labelled(device, keep(matches), label)
        device.replace(releases["mid"], Budget(200))

    forgotten = matches[::7]
    with (
        Device.create(tmp_path / "forgot", releases["old"]) as device,
        Device.create(tmp_path / "never", releases["old"]) as reference,
    ):
        label_of = dict(zip(matches, labels, strict=True)).get
        act(device, list, label_of)
        act(reference, lambda rows: [row for row in rows if row not in forgotten], label_of)
        assert device.forget(where=lambda row: row.example in forgotten).count == len(forgotten)
        reference.fit()
        probes = [Match((TEXTS[0], TEXTS[1]), text) for text in PROBES]
        for _ in range(2):
            np.testing.assert_allclose(
                device.predict_proba(probes), reference.predict_proba(probes), atol=TOLERANCE
            )
            device.rollback()
            reference.rollback()


# Conditions, full disks and killed processes


def test_a_failing_condition_forgets_nothing(device):
    with pytest.raises(ZeroDivisionError):
        device.forget(where=lambda row: 1 // (row.id - 5))
    assert len([*device.examples()]) == len(TEXTS)


@pytest.mark.parametrize("arguments", [{}, {"examples": [1], "where": bool}, {"where": 5}])
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
        assert device.forget([1]).count == 1


@pytest.mark.parametrize("unsynced", ["kept", "lost"])
def test_a_killed_forget_forgets_all_or_nothing(path, tmp_path, unsynced):
    forgotten = TEXTS[:20]

    def forget(folder, report):
        with Device.open(folder) as device:
            report(device.forget(where=lambda row: row.example in forgotten).count)

    with Device.open(path) as device:
        before = state(device)
    with Device.open(shutil.copytree(path, tmp_path / "whole")) as device:
        device.forget(where=lambda row: row.example in forgotten)
        after = state(device)
    counts = []
    cuts = PowerCuts(forget, path, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "delete"}, unsynced=unsynced):
        with Device.open(cut.folder) as device:
            counts.append(len(list(device.examples())))
            assert same(state(device), before if counts[-1] == len(TEXTS) else after)
        assert counts[-1] == len(TEXTS) - 20 or not cut.said
        if counts[-1] < len(TEXTS):
            assert not left_of(cut.folder, forgotten)
    assert set(counts) == {len(TEXTS), len(TEXTS) - 20}
