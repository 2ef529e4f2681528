"""For a release trained with hard prompts, the user's texts are compiled to a prompt."""

import json
import sqlite3

import numpy as np
import pytest

from adapter_releases import TEXTS
from bundles import make_head
from devices import sql
from fala import Budget, Device, DeviceError
from fala.backbones.state import EncoderState
from fala.bundle.writing import write_release
from fala.testing import PowerCuts, run_apart
from prompt_releases import KNOWN, NEWEST, is_new, try_prompt, write_compiling, write_plain

pytestmark = pytest.mark.slow


def prompts_of(folder):
    return [data for (data,) in sql(folder, "SELECT compiled FROM prompts")]


def test_the_prompt_is_compiled_from_the_newest_texts(prompt_trial, release, labels):
    folder, before, after, report = prompt_trial
    assert report.taken and "with the prompt" in report.reason and report.difference.better
    assert (report.texts, report.labelled) == (2, KNOWN - 2)
    assert report.forward_passes == 1 + KNOWN
    truth = np.array(labels) == "1"
    assert np.mean((after[:, 1] > 0.5) == truth) > 0.9 > np.mean((before[:, 1] > 0.5) == truth)
    backbone = release.backbone()
    context = backbone.compile_context(backbone.context([TEXTS[at] for at in NEWEST[:2]], 512))
    half = {name: part.astype("f2").astype("f4") for name, part in context.inputs.items()}
    with Device.open(folder) as device:
        z = device.model.logits(backbone.encode(TEXTS, EncoderState.of(half)))[:, 0]
    np.testing.assert_allclose(after[:, 1], 1 / (1 + np.exp(-z)), atol=1e-6)
    (data,) = prompts_of(folder)
    assert len(data) < 2 * sum(part.size for part in context.inputs.values()) + 200


def test_the_prompt_is_used_by_every_process(compiled, prompt_trial, labels):
    after = prompt_trial[2]
    data = prompts_of(compiled)
    with Device.open(compiled) as device:
        assert device.on_trial

        def predict(send):
            with Device.open(compiled) as second:
                send(second.predict_proba(TEXTS).tolist())

        assert run_apart(predict).said == (after.tolist(),)
        device.learn(TEXTS[KNOWN:], labels[KNOWN:])
        expected = device.predict_proba(TEXTS)
        again = device.refine(Budget(200), prompts="auto").prompt
        assert again.reason == "a prompt is in use already"
    assert prompts_of(compiled) == data and Device.examine(compiled).whole
    with Device.open(compiled) as device:
        np.testing.assert_array_equal(device.predict_proba(TEXTS), expected)


@pytest.mark.parametrize("back", [False, True], ids=["answers", "to go back to"])
def test_a_forgotten_text_is_in_no_prompt(compiled, tmp_path, release, labels, back):
    (data,) = prompts_of(compiled)
    with Device.open(compiled) as device:
        device.forget([next(device.examples()).id])  # a text that the prompt does not use
        device.confirm()
        assert prompts_of(compiled) == [data]
        if back:
            device.rollback()
        device.forget(where=lambda row: row.example == TEXTS[NEWEST[1]])
        p = device.predict_proba(TEXTS)
        assert prompts_of(compiled) == []
        if back:
            device.rollback()
            np.testing.assert_allclose(device.predict_proba(TEXTS), p, atol=1e-6)
    for file in compiled.iterdir():
        assert file.is_dir() or data[-64:] not in file.read_bytes()
    remaining = [*range(1, NEWEST[1]), NEWEST[0]]
    with Device.create(tmp_path / "never", release.path) as never:
        never.learn([TEXTS[at] for at in remaining], [labels[at] for at in remaining])
        np.testing.assert_allclose(p, never.predict_proba(TEXTS), atol=1e-6)
    with Device.open(compiled) as device:
        np.testing.assert_allclose(device.predict_proba(TEXTS), p, atol=1e-6)
        again = device.refine(Budget(200), prompts="auto").prompt
        assert again.taken and again.texts == 2 and prompts_of(compiled) != [data]


def test_the_second_replacement_deletes_the_prompt(compiled, tmp_path):
    with Device.open(compiled) as device:
        for seed, count in ((7, 1), (8, 0)):  # one rollback is possible
            path = tmp_path / f"{seed}.fala"
            newer = write_plain(path, seed=seed, name="other")
            device.replace(newer.path, Budget(0))
            assert len(prompts_of(compiled)) == count


def test_a_replacement_compiles_a_prompt_for_its_trial(tmp_path, release, labels):
    old = write_plain(tmp_path / "old.fala", seed=5, name="old").path
    with Device.create(tmp_path / "device", old) as device:
        device.learn(TEXTS, labels)
        before = device.predict_proba(TEXTS)
        assert device.replace(release.path, Budget(200), prompts="auto").prompt.texts == 2
        after = device.predict_proba(TEXTS)
    with Device.open(tmp_path / "device") as device:
        assert device.on_trial
        np.testing.assert_array_equal(device.predict_proba(TEXTS), after)
        device.rollback()
        np.testing.assert_array_equal(device.predict_proba(TEXTS), before)


def test_killed_at_every_file_operation(learned, prompt_trial, tmp_path):
    cuts = PowerCuts(try_prompt, learned, scratch=tmp_path)
    cut_points = cuts.at_operations({"sync", "rename", "delete"}, count=None, unsynced="lost")
    states = [is_new(cut.folder, *prompt_trial[1:3]) for cut in cut_points]
    assert states == sorted(states) and set(states) == {False, True}


def test_the_prompt_is_encrypted(tmp_path, release, labels, prompt_trial):
    folder, keys = tmp_path / "sealed", [bytes(32), bytes(31) + b"1"]
    with Device.create(folder, release.path, key=lambda: keys[0]) as device:
        device.learn(TEXTS[:KNOWN], labels[:KNOWN])
        assert device.refine(Budget(200), prompts="auto").prompt.taken
        after, sealed = device.predict_proba(TEXTS), prompts_of(folder)
        device.rotate_key(lambda: keys[1])
    assert prompts_of(prompt_trial[0])[0][-32:] not in sealed[0] and prompts_of(folder) != sealed
    with Device.open(folder, key=lambda: keys[1]) as device:
        np.testing.assert_array_equal(device.predict_proba(TEXTS), after)
        device.erase()
    assert not folder.exists()


def write_prompt(folder, data):
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
def test_a_repair_drops_a_damaged_prompt(compiled, prompt_trial, change, why):
    (data,) = prompts_of(compiled)
    with Device.open(compiled) as device:
        device.confirm()
    write_prompt(compiled, change(data))
    assert not Device.examine(compiled).whole
    with pytest.raises(DeviceError, match=r"slot b is damaged.*fala-device doctor") as caught:
        Device.open(compiled)
    assert why in str(caught.value) or "its checksum differs" in str(caught.value)
    assert Device.repair(compiled).whole
    with Device.open(compiled) as device:  # the release without a prompt
        np.testing.assert_allclose(device.predict_proba(TEXTS), prompt_trial[1], atol=1e-5)


def test_devices_and_releases_that_cannot_have_a_prompt(tmp_path, release, labels):
    unable = tmp_path / "unable.fala"
    plain = write_plain(tmp_path / "plain.fala")
    write_release(unable, plain, plain.head(), {"hard_prompt": {"tokens": 8}})
    match = tmp_path / "match.fala"
    write_release(match, release, make_head("matching"), {"hard_prompt": {"tokens": 8}})
    short = write_compiling(tmp_path / "short.fala", hard_prompt={"tokens": 2}).path
    for at, (bundle, options, count, budget, reason) in enumerate([
        (release.path, {}, 11, 200, "the encoded texts outside of the prompt have 9 labels"),
        (release.path, {}, KNOWN, 12, "12 forward passes are left of the budget"),
        (release.path, {"keep_text": "never"}, KNOWN, 200, "texts are not kept"),
        (unable, {}, KNOWN, 200, "cannot be used: the backbone's graph compiles no prompts"),
        (short, {}, KNOWN, 200, "has no room for one"),
    ]):  # fmt: skip
        with Device.create(tmp_path / f"device {at}", bundle, **options) as device:
            device.learn(TEXTS[:count], labels[:count])
            before = device.predict_proba(TEXTS)
            prompt = device.refine(Budget(budget), prompts="auto").prompt
            assert not prompt.taken and reason in prompt.reason
            np.testing.assert_array_equal(device.predict_proba(TEXTS), before)
    with Device.create(tmp_path / "matching", match) as device:
        assert "texts of one user" in device.refine(prompts="auto").prompt.reason


@pytest.mark.parametrize("setting", [True, {"tokens": True}, {"tokens": 0}, {"tokens": 513}, [8]])
def test_a_wrong_hard_prompt_setting_gives_no_prompt(tmp_path, setting):
    bundle = write_compiling(tmp_path / "x.fala", hard_prompt=setting)
    with Device.create(tmp_path / "device", bundle.path) as device:
        reason = device.refine(prompts="auto").prompt.reason
    assert reason == "compiling encoder was not trained with prompts of texts"
    assert json.loads(bundle.manifest.to_json())["details"]["hard_prompt"] == setting
