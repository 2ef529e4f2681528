"""A device that forgot is as one that never knew, and nothing is left on its disk."""

import shutil
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import refine_all, sql, state
from fala.device import Device
from fala.errors import DataError, DeviceError
from fala.examples import Match
from fala.personal.budget import Budget

#: Probabilities of a device that forgot, and of one that never knew, differ by less.
TOLERANCE = 1e-6
GONE = TEXTS[::9]
LATE = [f"{text} again" for text in TEXTS[:20]]


def assert_alike(device, other):
    for ours, theirs in zip(state(device), state(other), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


def both(tmp_path, release, live, examples=TEXTS, given=None, gone=GONE):
    """A device that lives and then forgets, and one that lives without what is forgotten."""
    known = dict(zip(examples, given, strict=True))
    with (
        Device.create(tmp_path / "forgot", release) as device,
        Device.create(tmp_path / "never", release) as other,
    ):
        live(device, lambda texts: texts, known.get)
        live(other, lambda texts: [text for text in texts if text not in gone], known.get)
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


def teach(device, texts, label):
    device.learn(texts, [label(text) for text in texts])


def learn(device, known, label):
    teach(device, known(TEXTS), label)


def replace_with(budget, whole=False, unlabelled=False):
    def live(device, known, label, path):
        def said(text):
            return None if unlabelled and TEXTS.index(text) % 3 == 0 else label(text)

        teach(device, known(TEXTS), said)
        device.replace(path, budget)
        if whole:
            refine_all(device)

    return live


def test_after_learning(tmp_path, releases, labels):
    for _ in both(tmp_path, releases["old"], learn, given=labels):
        pass


def test_after_one_more_label(tmp_path, releases):
    """One label after the other is added to the last fit: what is forgotten was in both."""
    texts = [f"{one} {other}" for one in TEXTS[:20] for other in TEXTS[20:33]]
    labels = bridged.planted_labels(releases["old"], texts)

    def lived(device, known, label):
        teach(device, known(texts[:250]), label)
        for text in known(texts[250:]):
            assert not device.learn([text], [label(text)]).exact

    gone = {*texts[::9], texts[-1], texts[-3]}
    for _ in both(tmp_path, releases["old"], lived, texts, labels, gone):
        pass


@pytest.mark.parametrize("unlabelled", [False, True], ids=["labelled", "old logits"])
@pytest.mark.parametrize(
    ("bridges", "budget", "whole"),
    [(True, Budget(0), False), (True, Budget(90), True), (False, Budget(200), False)],
    ids=["bridge", "refined", "no bridge"],
)
def test_after_a_replacement(tmp_path, labels, bridges, budget, whole, unlabelled):
    releases = bridged.write_releases(tmp_path, bridges=bridges)
    live = replace_with(budget, whole, unlabelled)

    def lived(device, known, label):
        live(device, known, label, releases["mid"])

    for device, _ in both(tmp_path, releases["old"], lived, given=labels):
        teachers = sql(tmp_path / "forgot", "SELECT count(*) FROM logits")
        assert teachers == [(2 * (len(TEXTS) - len(GONE)),)]
        assert not device.model.is_vendor


def test_after_a_replacement_and_more_labels(tmp_path, releases, labels):
    def lived(device, known, label):
        replace_with(Budget(0), unlabelled=True)(device, known, label, releases["mid"])
        for text in known(LATE):
            teach(device, [text], lambda text: "1")

    gone = {*GONE, *LATE[::3]}
    for _ in both(tmp_path, releases["old"], lived, given=labels, gone=gone):
        pass


def test_what_came_after_a_replacement_leaves_its_old_logits_alone(tmp_path, releases, labels):
    def lived(device, known, label):
        replace_with(Budget(0), unlabelled=True)(device, known, label, releases["mid"])
        teach(device, known(LATE), lambda text: "1")

    folder, statement = tmp_path / "forgot", "SELECT model, value FROM logits ORDER BY 1, 2"
    for _ in both(tmp_path, releases["old"], lived, given=labels, gone=LATE[:5]):
        said = sql(folder, statement)
    assert said == sql(tmp_path / "never", statement)


def test_after_a_rollback(tmp_path, releases, labels):
    def lived(device, known, label):
        replace_with(Budget(0), unlabelled=True)(device, known, label, releases["mid"])
        device.rollback()
        teach(device, known(LATE), lambda text: "0")

    gone = {*GONE, *LATE[::3]}
    for _ in both(tmp_path, releases["old"], lived, given=labels, gone=gone):
        pass


def test_after_a_chain_whose_first_backbone_is_gone(tmp_path, releases, labels):
    """Labels say all; old logits of what is gone cannot be said again, and go."""

    def lived(device, known, label):
        learn(device, known, label)
        device.replace(releases["mid"], Budget(0))
        device.replace(releases["new"], Budget(0))

    for _ in both(tmp_path, releases["old"], lived, given=labels):
        pass


def test_of_a_chain_no_old_logit_stays_that_knew_it(tmp_path, releases, labels):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, [None if at % 3 == 0 else one for at, one in enumerate(labels)])
        device.replace(releases["mid"], Budget(20))
        device.replace(releases["new"], Budget(20))
        before = {model for (model,) in sql(tmp_path / "device", "SELECT model FROM logits")}
        device.forget([2])
        after = {model for (model,) in sql(tmp_path / "device", "SELECT model FROM logits")}
        # The vendor's own logits may stay: they know nobody.
        assert len(before & after) <= 1
        slots = sql(tmp_path / "device", "SELECT name, teacher FROM slots ORDER BY name")
        assert slots[1] == ("b", None) and slots[0][1] in after
        assert np.isfinite(device.predict(PROBES)).all()


def test_where_nothing_is_left_the_vendor_answers(device, releases):
    device.replace(releases["mid"], Budget(10))
    assert device.forget(where=lambda row: True) == len(TEXTS)
    assert device.model.is_vendor
    device.rollback()
    assert device.model.is_vendor and device.threshold == 0


def test_matches(tmp_path):
    releases = bridged.write_releases(tmp_path, "matching")
    matches = list(dict.fromkeys(bridged.matches(texts=TEXTS)))
    labels = bridged.planted_labels(releases["old"], matches)

    def lived(device, known, label):
        teach(device, known(matches), label)
        device.replace(releases["mid"], Budget(200))

    gone = matches[::7]
    with (
        Device.create(tmp_path / "forgot", releases["old"]) as device,
        Device.create(tmp_path / "never", releases["old"]) as other,
    ):
        known = dict(zip(matches, labels, strict=True))
        lived(device, list, known.get)
        lived(other, lambda rows: [row for row in rows if row not in gone], known.get)
        assert device.forget(where=lambda row: row.example in gone) == len(gone)
        other.fit()
        probes = [Match((TEXTS[0], TEXTS[1]), text) for text in PROBES]
        for _ in range(2):
            np.testing.assert_allclose(
                device.predict(probes), other.predict(probes), atol=TOLERANCE
            )
            device.rollback()
            other.rollback()


# By what they are, and mistakes


def test_by_what_they_are(device):
    before = [*device.examples()]
    assert device.forget(where=lambda row: row.label == "1" and row.id % 2) > 0
    left = {row.id for row in device.examples()}
    assert left == {row.id for row in before if row.label != "1" or row.id % 2 == 0}
    assert device.forget(where=lambda row: False) == 0


@pytest.mark.parametrize("given", [{}, {"ids": [1], "where": bool}, {"where": 5}, {"where": "a"}])
def test_what_says_nothing(device, given):
    with pytest.raises(DataError):
        device.forget(**given)
    assert len([*device.examples()]) == len(TEXTS)


def test_a_condition_that_fails_forgets_nothing(device):
    with pytest.raises(ZeroDivisionError):
        device.forget(where=lambda row: 1 // (row.id - 5))
    assert len([*device.examples()]) == len(TEXTS)


def test_what_fails_on_its_way_forgets_nothing(device, path, monkeypatch):
    before = state(device)

    def full(*arguments):
        raise DeviceError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("fala.store.slots.Slots.put", full)
        with pytest.raises(DeviceError, match="full"):
            device.forget([1, 2, 3])
    for one in (device, Device.open(path)):
        assert len([*one.examples()]) == len(TEXTS)
        for ours, theirs in zip(state(one), before, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert device.forget([1]) == 1


KILLED = """
import os, signal, sys
from fala.device import Device
from fala.store import slots, store

def killed(*arguments, **further):
    os.kill(os.getpid(), signal.SIGKILL)

device = Device.open(sys.argv[1])
owner, name = {"written": (slots.Slots, "put"), "kept": (store.Store, "scrub")}[sys.argv[2]]
setattr(owner, name, killed)
device.forget([1, 2, 3])
"""


@pytest.mark.parametrize("point", ["written", "kept"])
def test_a_device_that_was_killed_knows_all_of_them_or_none(device, path, point, tmp_path):
    before = state(device)
    shutil.copytree(path, tmp_path / "copy")
    device.close()
    with Device.open(tmp_path / "copy") as other:
        other.forget([1, 2, 3])
        after = state(other)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), point], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with Device.open(path) as again:
        ids = {row.id for row in again.examples()}
        expected, left = (before, {1, 2, 3}) if point == "written" else (after, set())
        assert ids & {1, 2, 3} == left
        for ours, theirs in zip(state(again), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    if point == "kept":  # the last one to close it has emptied the log
        assert not left_of(path, TEXTS[:3])


# Not a byte


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_no_byte_of_a_text_is_left_on_the_disk(tmp_path, releases, closed):
    folder = tmp_path / "device"
    secret = [f"the secret number {at} " + "is long " * (at * 40) for at in range(12)]
    plain = [f"what is plain {at}" for at in range(300)]
    with Device.create(folder, releases["old"]) as device:
        device.learn([*plain, *secret], ["0", "1"] * 156)
        device.replace(releases["mid"], Budget(10))
        assert b"the secret number" in everything(folder)
        device.forget(where=lambda row: "secret" in row.example)
        if not closed:
            assert not left_of(folder, secret) and b"what is plain 7" in everything(folder)
    assert not left_of(folder, secret) and b"what is plain 7" in everything(folder)


def test_nor_of_what_an_earlier_version_deleted(path):
    db = sqlite3.connect(path / "store.sqlite3")
    db.execute("PRAGMA secure_delete = OFF")
    db.execute("UPDATE device SET overwrites = 0")
    db.execute("CREATE TABLE other (text)")
    db.executemany("INSERT INTO other VALUES (?)", [["an old secret " * 20]] * 50)
    db.execute("DROP TABLE other")
    db.commit()
    db.close()
    assert b"an old secret" in everything(path)
    with Device.open(path) as device:
        device.forget([1])
        assert b"an old secret" not in everything(path)


def test_nor_in_what_a_repair_has_kept_aside(path):
    sql(path, "UPDATE examples SET label = x'ff' WHERE id = 3")
    aside = path / Device.repair(path).aside
    assert TEXTS[5].encode() in aside.read_bytes()
    with Device.open(path) as device:
        device.forget(where=lambda row: row.example == TEXTS[5])
    assert not aside.exists() and TEXTS[5].encode() not in everything(path)


def everything(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def left_of(folder, texts):
    """Pieces of some texts in any file, in two encodings."""
    found = everything(folder)
    return [
        piece
        for text in texts
        for piece in (text[:21], text[-21:])
        if piece.encode() in found or piece.encode("utf-16-le") in found
    ]
