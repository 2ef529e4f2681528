"""A device that forgot is as one that never had the examples, and its disk is overwritten."""

import errno
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from devices import embedded, refine_all, same, sql, state, vendor_of
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


def test_after_learning(tmp_path, releases, labels):
    for _ in both(tmp_path, releases["old"], learn, labels=labels):
        pass


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


def test_after_a_replacement_and_more_labels(tmp_path, releases, labels):
    def lived(device, kept, label):
        replace_with(Budget(0), unlabelled=True)(device, kept, label, releases["mid"])
        for text in kept(LATE):
            learn_labelled(device, [text], lambda text: "1")

    gone = {*GONE, *LATE[::3]}
    for _ in both(tmp_path, releases["old"], lived, labels=labels, gone=gone):
        pass


def test_what_came_after_a_replacement_leaves_its_old_logits_alone(tmp_path, releases, labels):
    def lived(device, kept, label):
        replace_with(Budget(0), unlabelled=True)(device, kept, label, releases["mid"])
        learn_labelled(device, kept(LATE), lambda text: "1")

    folder, statement = tmp_path / "forgot", "SELECT model, value FROM logits ORDER BY 1, 2"
    for _ in both(tmp_path, releases["old"], lived, labels=labels, gone=LATE[:5]):
        logits = sql(folder, statement)
    assert logits == sql(tmp_path / "never", statement)


def test_after_a_rollback(tmp_path, releases, labels):
    def lived(device, kept, label):
        replace_with(Budget(0), unlabelled=True)(device, kept, label, releases["mid"])
        device.rollback()
        learn_labelled(device, kept(LATE), lambda text: "0")

    gone = {*GONE, *LATE[::3]}
    for _ in both(tmp_path, releases["old"], lived, labels=labels, gone=gone):
        pass


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


def test_after_labels_that_nothing_was_fitted_to_before_a_replacement(tmp_path, releases, labels):
    """What was only kept has old logits of a model that was not fitted to it."""

    def lived(device, kept, label):
        learn(device, lambda texts: kept(texts[:60]), label)
        late = kept(TEXTS[:10] + TEXTS[60:])
        device.remember(late, [None if TEXTS.index(text) % 2 else "1" for text in late])
        device.replace(releases["mid"], Budget(0))

    for _ in both(tmp_path, releases["old"], lived, labels=labels):
        pass


def test_after_an_example_that_took_the_place_of_a_forgotten_one(tmp_path, releases, labels):
    """The largest id is given again: what is kept under it came after the replacement."""

    def lived(device, kept, label):
        replace_with(Budget(0), unlabelled=True)(device, kept, label, releases["mid"])
        device.rollback()
        device.forget(where=lambda row: row.example == TEXTS[-1])
        learn_labelled(device, kept(LATE), lambda text: None)
        device.rollback()

    for _ in both(tmp_path, releases["old"], lived, labels=labels, gone=TEXTS[:9]):
        pass


def test_after_a_chain_whose_first_backbone_is_gone(tmp_path, releases, labels):
    """Labels are enough; old logits of a backbone that is gone cannot be made again, and go."""

    def lived(device, kept, label):
        learn(device, kept, label)
        device.replace(releases["mid"], Budget(0))
        device.replace(releases["new"], Budget(0))

    for _ in both(tmp_path, releases["old"], lived, labels=labels):
        pass


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


def test_examples_are_forgotten_by_a_function(device):
    before = [*device.examples()]
    assert device.forget(where=lambda row: row.label == "1" and row.id % 2) > 0
    left = {row.id for row in device.examples()}
    assert left == {row.id for row in before if row.label != "1" or row.id % 2 == 0}
    assert device.forget(where=lambda row: False) == 0


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


# The bytes on the disk


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


def test_no_byte_is_left_where_rows_were_moved(tmp_path, releases):
    """SQLite leaves copies of rows that it moves between pages, and overwrites none of them."""
    folder, draw = tmp_path / "device", random.Random(0)
    gone = []
    with Device.create(folder, releases["old"]) as device:
        for number in range(4):
            names = [f"{number} {at} {draw.getrandbits(80):x} " for at in range(400)]
            device.remember([name * draw.choice([1, 2, 5, 40]) for name in names])
            for _ in range(3):
                forgotten = draw.sample([*device.examples()], 100)
                device.forget([row.id for row in forgotten])
                gone += [row.example for row in forgotten]
    assert len(gone) == 1200 and not left_of(folder, gone)


READER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN")
db.execute("SELECT count(*) FROM texts").fetchall()
print("reading", flush=True)
sys.stdin.readline()
"""


@contextmanager
def reading(path):
    """Another process that is stopped in a read."""
    command = [sys.executable, "-c", READER, path / "store.sqlite3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"reading\n"
        yield


@pytest.mark.parametrize("finish", ["learn", "forget", "open", "close"])
def test_forget_reports_what_a_reader_keeps_and_finishes_later(path, finish, monkeypatch):
    monkeypatch.setattr("fala.store.database.SCRUB_TIMEOUT_MS", 50)
    with Device.open(path) as device:
        assert device.forget([5]).overwritten and device.forget([]).overwritten
        with reading(path):
            count = device.forget(where=lambda row: row.example == TEXTS[7])
            assert count == 1 and not count.overwritten
            assert not device.forget([]).overwritten
            assert TEXTS[7].encode() in everything(path)
        if finish == "learn":
            device.learn(["another"], ["1"])
        elif finish == "forget":
            assert device.forget([]).overwritten
        elif finish == "open":
            Device.open(path).close()
        else:
            device.close()
        assert TEXTS[7].encode() not in everything(path)


def test_no_byte_is_left_in_what_a_killed_repair_has_left(path, tmp_path):
    sql(path, "INSERT INTO logits VALUES (999, 'model', x'00')")  # an example that is not there
    left = []
    cuts = PowerCuts(lambda folder, say: Device.repair(folder), path, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "rename"}):
        if not (cut.folder / "store.sqlite3").exists():
            continue  # it is finished by the next one
        left += [file.name for file in cut.folder.glob("rebuilt-*")]
        with Device.open(cut.folder) as device:
            assert not [*cut.folder.glob("rebuilt-*")]
            device.forget(where=lambda row: row.example == TEXTS[5])
        assert TEXTS[5].encode() not in everything(cut.folder)
    assert left


def test_no_byte_is_left_of_what_an_earlier_version_deleted(path):
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


def test_no_byte_is_left_in_what_a_repair_has_kept_aside(path):
    sql(path, "INSERT INTO logits VALUES (999, 'model', x'00')")  # an example that is not there
    aside = path / Device.repair(path).aside
    assert TEXTS[5].encode() in aside.read_bytes()
    with Device.open(path) as device:
        device.forget(where=lambda row: row.example == TEXTS[5])
    assert not aside.exists() and TEXTS[5].encode() not in everything(path)


def everything(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def left_of(folder, texts):
    """Pieces of some texts in any file, in two encodings."""
    data = everything(folder)
    return [
        piece
        for text in texts
        for piece in (text[:21], text[-21:])
        if piece.encode() in data or piece.encode("utf-16-le") in data
    ]
