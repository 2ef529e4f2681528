"""A release that was trained with hard prompts: the user's own texts are compiled to one."""

import json
import sqlite3

import numpy as np
import pytest

from adapter_releases import TEXTS
from bundles import make_head
from devices import sql
from fala import Budget, Device, DeviceError, write_release
from fala.backbones.state import EncoderState
from fala.testing import PowerCuts, run_apart
from prompt_releases import KNOWN, NEWEST, is_new, try_prompt, write_compiling, write_plain

pytestmark = pytest.mark.slow


def kept(folder):
    return [data for (data,) in sql(folder, "SELECT compiled FROM prompts")]


def test_it_is_what_the_backbone_makes_of_the_newest_texts(taken, release, labels):
    folder, before, after, told = taken
    assert told.taken and "with the prompt" in told.reason and told.difference.better
    assert (told.texts, told.labelled) == (2, KNOWN - 2)
    assert told.forward_passes == 1 + KNOWN
    truth = np.array(labels) == "1"
    assert np.mean((after[:, 1] > 0.5) == truth) > 0.9 > np.mean((before[:, 1] > 0.5) == truth)
    backbone = release.backbone()
    made = backbone.compile_context(backbone.context([TEXTS[at] for at in NEWEST[:2]], 512))
    half = {name: part.astype("f2").astype("f4") for name, part in made.inputs.items()}
    with Device.open(folder) as device:
        z = device.model.logits(backbone.encode(TEXTS, EncoderState.of(half)))[:, 0]
    np.testing.assert_allclose(after[:, 1], 1 / (1 + np.exp(-z)), atol=1e-6)
    (data,) = kept(folder)
    assert len(data) < 2 * sum(part.size for part in made.inputs.values()) + 200


def test_every_process_goes_on_with_it(compiled, taken, labels):
    after = taken[2]
    data = kept(compiled)
    with Device.open(compiled) as device:
        assert device.on_trial

        def other(say):
            with Device.open(compiled) as second:
                say(second.predict(TEXTS).tolist())

        assert run_apart(other).said == (after.tolist(),)
        device.learn(TEXTS[KNOWN:], labels[KNOWN:])
        told = device.predict(TEXTS)
        again = device.refine(Budget(200), prompts="auto").prompt
        assert again.reason == "a prompt is in use already"
    assert kept(compiled) == data and Device.examine(compiled).whole
    with Device.open(compiled) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), told)


@pytest.mark.parametrize("back", [False, True], ids=["answers", "to go back to"])
def test_a_text_that_is_forgotten_is_in_no_prompt(compiled, tmp_path, release, labels, back):
    (data,) = kept(compiled)
    with Device.open(compiled) as device:
        device.forget([next(device.examples()).id])  # none of those that it is of
        device.confirm()
        assert kept(compiled) == [data]
        if back:
            device.rollback()
        device.forget(where=lambda row: row.example == TEXTS[NEWEST[1]])
        found = device.predict(TEXTS)
        assert kept(compiled) == []
        if back:
            device.rollback()
            np.testing.assert_allclose(device.predict(TEXTS), found, atol=1e-6)
    for file in compiled.iterdir():
        assert file.is_dir() or data[-64:] not in file.read_bytes()
    whole = [*range(1, NEWEST[1]), NEWEST[0]]
    with Device.create(tmp_path / "never", release.path) as never:
        never.learn([TEXTS[one] for one in whole], [labels[one] for one in whole])
        np.testing.assert_allclose(found, never.predict(TEXTS), atol=1e-6)
    with Device.open(compiled) as device:
        np.testing.assert_allclose(device.predict(TEXTS), found, atol=1e-6)
        again = device.refine(Budget(200), prompts="auto").prompt
        assert again.taken and again.texts == 2 and kept(compiled) != [data]


def test_the_next_release_leaves_none_of_it(compiled, tmp_path):
    with Device.open(compiled) as device:
        for seed, left in ((7, 1), (8, 0)):  # it may be gone back to, once
            path = tmp_path / f"{seed}.fala"
            other = write_plain(path, seed=seed, name="other")
            device.replace(other.path, Budget(0))
            assert len(kept(compiled)) == left


def test_a_replacement_compiles_it_as_a_part_of_its_trial(tmp_path, release, labels):
    old = write_plain(tmp_path / "old.fala", seed=5, name="old").path
    with Device.create(tmp_path / "device", old) as device:
        device.learn(TEXTS, labels)
        before = device.predict(TEXTS)
        assert device.replace(release.path, Budget(200), prompts="auto").prompt.texts == 2
        after = device.predict(TEXTS)
    with Device.open(tmp_path / "device") as device:
        assert device.on_trial
        np.testing.assert_array_equal(device.predict(TEXTS), after)
        device.rollback()
        np.testing.assert_array_equal(device.predict(TEXTS), before)


def test_killed_at_every_end_of_something(learned, taken, tmp_path):
    cuts = PowerCuts(try_prompt, learned, scratch=tmp_path)
    ends = cuts.at_operations({"sync", "rename", "delete"}, count=None, unsynced="lost")
    found = [is_new(cut.folder, *taken[1:3]) for cut in ends]
    assert found == sorted(found) and set(found) == {False, True}


def test_an_encrypted_device_hides_it(tmp_path, release, labels, taken):
    folder, keys = tmp_path / "sealed", [bytes(32), bytes(31) + b"1"]
    with Device.create(folder, release.path, key=lambda: keys[0]) as device:
        device.learn(TEXTS[:KNOWN], labels[:KNOWN])
        assert device.refine(Budget(200), prompts="auto").prompt.taken
        after, sealed = device.predict(TEXTS), kept(folder)
        device.rotate_key(lambda: keys[1])
    assert kept(taken[0])[0][-32:] not in sealed[0] and kept(folder) != sealed
    with Device.open(folder, key=lambda: keys[1]) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), after)
        device.erase()
    assert not folder.exists()


def damaged(folder, data):
    with sqlite3.connect(folder / "store.sqlite3") as db:
        if data is None:
            db.execute("DELETE FROM prompts")
        db.execute("UPDATE prompts SET compiled = ?", (data,))
    db.close()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: None, "the prompt, is not the bundle's"),
        (lambda data: data[:-2] + b"\0\x3c", "the prompt, is not the bundle's"),
        (lambda data: data[:-2] + b"\0\x7c", "NaN or infinity"),
        (lambda data: data[:-2], "a prompt of texts that is damaged"),
        (lambda data: data.replace(b"<f2", b"|i1"), "a prompt of texts that is damaged"),
        (
            lambda data: data.replace(b"(1, 2, 2, ", b"(2, 1, 2, "),
            "damaged: float16 of shape",
        ),
        (lambda data: "text", "bytes expected"),
    ],
    ids=["gone", "another", "infinite", "cut", "type", "shape", "text"],
)
def test_one_that_is_damaged_gives_way(compiled, taken, change, why):
    (data,) = kept(compiled)
    with Device.open(compiled) as device:
        device.confirm()
    damaged(compiled, change(data))
    found = Device.examine(compiled)
    assert not found.whole
    with pytest.raises(DeviceError, match=r"slot b is damaged.*fala-device doctor") as caught:
        Device.open(compiled)
    assert why in str(caught.value) or why in found.slots["b"]
    assert Device.repair(compiled).answers == "a"
    with Device.open(compiled) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), taken[1])


def test_a_store_that_is_written_anew_keeps_it(compiled, taken):
    with Device.open(compiled) as device:
        device.confirm()
    sql(compiled, "PRAGMA user_version = 3")
    report = Device.repair(compiled)
    assert report.whole and report.aside and not report.fit
    with Device.open(compiled) as device:
        np.testing.assert_array_equal(device.predict(TEXTS), taken[2])


def test_devices_and_releases_without_what_it_takes(tmp_path, release, labels):
    unable = tmp_path / "unable.fala"
    plain = write_plain(tmp_path / "plain.fala")
    write_release(unable, plain, plain.head(), {"hard_prompt": {"tokens": 8}})
    match = tmp_path / "match.fala"
    write_release(match, release, make_head("matching"), {"hard_prompt": {"tokens": 8}})
    short = write_compiling(tmp_path / "short.fala", hard_prompt={"tokens": 2}).path
    for at, (bundle, options, count, budget, reason) in enumerate([
        (release.path, {}, 11, 200, "9 labelled examples were encoded that are not in the prompt"),
        (release.path, {}, KNOWN, 12, "12 forward passes are left of the budget"),
        (release.path, {"keep_text": "never"}, KNOWN, 200, "texts are not kept"),
        (unable, {}, KNOWN, 200, "cannot be used: the backbone's graph compiles no prompts"),
        (short, {}, KNOWN, 200, "has no room for one"),
    ]):  # fmt: skip
        with Device.create(tmp_path / f"device {at}", bundle, **options) as device:
            device.learn(TEXTS[:count], labels[:count])
            before = device.predict(TEXTS)
            told = device.refine(Budget(budget), prompts="auto").prompt
            assert not told.taken and reason in told.reason
            np.testing.assert_array_equal(device.predict(TEXTS), before)
    with Device.create(tmp_path / "matching", match) as device:
        assert "texts of one user" in device.refine(prompts="auto").prompt.reason


@pytest.mark.parametrize("told", [True, {"tokens": True}, {"tokens": 0}, {"tokens": 513}, [8]])
def test_what_no_training_tells_is_no_prompt(tmp_path, told):
    bundle = write_compiling(tmp_path / "x.fala", hard_prompt=told)
    with Device.create(tmp_path / "device", bundle.path) as device:
        reason = device.refine(prompts="auto").prompt.reason
    assert reason == "compiling encoder was not trained with prompts of texts"
    assert json.loads(bundle.manifest.to_json())["details"]["hard_prompt"] == told
