"""Several tasks share one backbone: each is an adapter of a device."""

import gc
import json

import numpy as np
import pytest

import fala
from adapter_releases import (
    NAMES,
    PROBES,
    TEXTS,
    answers,
    equal,
    labels_of,
    learned_device,
)
from bundles import DIMENSION, write_word_vector_release
from devices import sql
from fala import Bundle, Device, Pair
from fala.backbones import OnnxEncoder
from fala.model.heads import Head
from fala.model.links import Rating
from tasks import write_task

pytestmark = pytest.mark.slow


def test_loading_an_adapter_does_not_change_other_tasks(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, labels_of(""))
        expected = {"": device.predict_proba(PROBES)}
        for name, path in zip(NAMES, releases["old adapters"], strict=True):
            assert device.load_adapter(path) == name
            assert equal({task: answers(device)[task] for task in expected}, expected)
            device.learn(TEXTS, labels_of(name), adapter=name)
            assert equal({task: answers(device)[task] for task in expected}, expected)
            expected = answers(device)
        assert device.status().adapters == ("one", "three", "two")
        device.delete_adapter("two")
        del expected["two"]
        assert equal(answers(device), expected)
    with Device.open(tmp_path / "device") as device:
        assert equal(answers(device), expected)


def test_an_adapter_without_labels_equals_its_vendors_model(tmp_path, releases):
    base, adapter = Bundle.open(releases["old"]), Bundle.open(releases["old adapters"][0])
    embeddings = base.backbone().encode(PROBES, adapter.adapter())
    expected = adapter.head().vendor_model().probabilities(embeddings)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        name = device.load_adapter(adapter.path, name="my-task", positive="0")
        assert name == "my-task"
        np.testing.assert_array_equal(device.predict_proba(PROBES, adapter=name), expected)
        assert np.abs(device.predict_proba(PROBES) - expected).max() > 0.01
        info = device.status(adapter=name)
        assert (info.labels, info.positive, info.decision) == (("0", "1"), "0", "vendor")
        ranked = device.rank(PROBES, adapter=name)
        assert ranked == device.rank(PROBES, adapter=name, label="0")
        assert ranked[0] == (PROBES[expected[:, 0].argmax()], expected[:, 0].max())
        report = device.learn([Pair("good film", "a bad film")], ["1"], adapter=name)
        assert (report.examples, report.labelled) == (1, 1)
        (row,) = device.examples(adapter=name)
        assert (row.example, row.adapter) == (Pair("good film", "a bad film"), name)
        assert list(device.examples()) == []


def test_adapter_mistakes_are_rejected(device, releases, tmp_path):
    before, words = answers(device), write_word_vector_release(tmp_path / "words.fala").path
    old, new, release = releases["old adapters"], releases["new adapters"], releases["new"]

    def load(path, **options):
        return lambda: device.load_adapter(path, **options)

    def replace(path, adapters=()):
        return lambda: device.replace(path, adapters=adapters)

    unknown = fala.UnknownAdapterError, r"no adapter has this name \(loaded: one, three"
    bad_name = fala.DataError, "an adapter's name must consist of a-z"
    other_backbone = fala.BundleMismatchError, "an adapter for the backbone"
    for error, match, *calls in (
        (*unknown, lambda: device.learn(["a"], ["1"], adapter="four"),
         lambda: device.delete_adapter("four")),
        (*bad_name, lambda: device.predict_proba(["a"], adapter="../one"),
         lambda: device.delete_adapter(None), load(old[0], name="a/b")),
        (fala.DataError, "there is an adapter one already", load(old[0])),
        (fala.DataError, "positive must be one of 0, 1", load(old[0], name="other", positive="2")),
        (fala.BundleError, r"nowhere: no such file$", load("nowhere")),  # no hint at a release
        (*other_backbone, load(new[0], name="other"), replace(release, old)),
        (fala.BundleSignatureError, "not signed", load(old[0], name="other", trust=bytes(32))),
        (fala.BundleMismatchError, "a release, not an adapter", load(release)),
        (fala.MissingAdapterError, "no adapter for three, two; .*delete it first",
         replace(release, new[:1])),
        (fala.MissingAdapterError, "no adapter for", replace(words)),
        (fala.UnknownAdapterError, "this device has no adapter of its name",
         replace(release, {"four": new[0]})),
        (fala.DataError, "a second adapter for one", replace(release, [new[0], new[0]])),
        (fala.DataError, "adapters", replace(release, 5)),
    ):  # fmt: skip
        for call in calls:
            with pytest.raises(error, match=match):
                call()
    assert equal(answers(device), before)
    assert len(list((tmp_path / "device" / "bundles").iterdir())) == 4


def sessions():
    """Return the loaded transformers by their identity."""
    return {id(each): each for each in gc.get_objects() if isinstance(each, OnnxEncoder)}


def test_all_tasks_and_devices_have_one_session(folder):
    with Device.open(folder) as device, Device.open(folder) as second:
        loaded = len(sessions())
        before = answers(device)
        for name in ("", *NAMES):  # the second device learns
            second.learn(["a new text"], ["1"], adapter=name or None)
        assert not any(np.array_equal(before[name], p) for name, p in answers(device).items())
        assert len(sessions()) == loaded + 1


def test_word_vectors_take_no_adapter(tmp_path):
    base = write_word_vector_release(tmp_path / "words.fala")
    write_task(tmp_path / "task.fala", base, "task", layers=1, size=3)
    with Device.create(tmp_path / "device", base.path) as device:
        with pytest.raises(
            fala.BundleFormatError, match="an adapter for a backbone that takes none"
        ):
            device.load_adapter(tmp_path / "task.fala")
        assert device.status().adapters == () and len(device.predict(PROBES)) == len(PROBES)


def test_a_task_of_ratings_lives_beside_labels(device, releases, tmp_path):
    paths = {}
    for age, seed in (("old", 4), ("new", 9)):
        weight = np.random.default_rng(seed).normal(size=(1, DIMENSION))
        head = Head("classification", ("stars",), weight, np.array([3.0]), link=Rating(1, 5, 1.0))
        paths[age] = tmp_path / f"{age}.fala"
        write_task(paths[age], Bundle.open(releases[age]), "stars", head, layers=1, seed=seed)
    device.load_adapter(paths["old"])
    device.learn(TEXTS[:40], [1.0 + at % 5 for at in range(40)], adapter="stars")
    before = device.predict(PROBES, adapter="stars")
    assert 1 <= before.min() < before.max() <= 5
    with pytest.raises(fala.UsageError, match="predict returns its values"):
        device.predict_proba(PROBES, adapter="stars")
    others = releases["new adapters"]
    labels = dict(zip((*NAMES, "stars"), (*others, others[0]), strict=True))
    with pytest.raises(fala.BundleMismatchError, match=r"this device does .* 'stars' from 1 to 5"):
        device.replace(releases["new"], adapters=labels)
    report = device.replace(releases["new"], adapters=[*others, paths["new"]])
    assert set(report.adapters["stars"].scores) <= {"rmse", "rank_correlation"}
    device.rollback()
    np.testing.assert_array_equal(device.predict(PROBES, adapter="stars"), before)


def test_processes_see_each_others_tasks(folder, releases):
    with Device.open(folder) as device, Device.open(folder) as second:
        answers(second)
        device.delete_adapter("two")
        with pytest.raises(fala.UnknownAdapterError):
            second.predict_proba(PROBES, adapter="two")
        device.load_adapter(releases["old adapters"][1])
        assert second.status(adapter="two").examples == 0
        assert equal(answers(second), answers(device))
        device.replace(releases["new"], adapters=releases["new adapters"])
        assert second.status().release == "new encoder" and equal(answers(second), answers(device))
        second.rollback()
        assert device.status().release == "old encoder" and equal(answers(second), answers(device))


def test_every_task_has_its_own_examples(device, folder, tmp_path):
    count = len(list(device.examples()))
    rows = list(device.examples(adapter="one"))
    assert len(rows) == 40 and {row.adapter for row in rows} == {"one"}
    assert device.forget([row.id for row in rows]).count == 0  # of another task
    before = answers(device)
    target = tmp_path / "one.jsonl"
    assert device.export_data(target, adapter="one") == 40
    first = json.loads(target.read_text().splitlines()[0])
    assert (first["text"], first["label"]) == (TEXTS[1], labels_of("one")[1])
    assert device.forget(where=lambda row: row.example == TEXTS[5], adapter="one").count == 1
    after = answers(device)
    assert [name for name in before if not np.array_equal(before[name], after[name])] == ["one"]
    assert len(list(device.examples())) == count
    assert TEXTS[5] in [row.example for row in device.examples(adapter="two")]


def test_labels_of_one_task_are_withdrawn(device):
    """The tasks share texts, but not their labels."""
    before = answers(device)
    counts = {name: device.status(adapter=name).labelled for name in device.status().adapters}
    (row, *_) = device.examples(labelled=True, adapter="one")
    report = device.unlabel([row.example], adapter="one")
    assert report.labelled == counts["one"] - 1
    after = answers(device)
    assert not equal({"one": after.pop("one")}, {"one": before.pop("one")})
    assert equal(after, before)
    assert {name: device.status(adapter=name).labelled for name in device.status().adapters} == {
        **counts, "one": counts["one"] - 1,
    }  # fmt: skip


def test_a_task_forgets_as_if_it_never_learned(folder, device, releases, tmp_path):
    device.forget([row.id for row in device.examples(adapter="one")][5:], adapter="one")
    with Device.create(tmp_path / "other", releases["old"]) as reference:
        reference.load_adapter(releases["old adapters"][0])
        reference.learn(TEXTS[1:6], labels_of("one")[1:6], adapter="one")
        expected = reference.predict_proba(PROBES, adapter="one")
    np.testing.assert_allclose(device.predict_proba(PROBES, adapter="one"), expected, atol=1e-6)
    device.forget(where=lambda row: True, adapter="one")
    assert device.status(adapter="one").decision == "vendor"


def test_deleting_a_task_deletes_its_data(folder, releases):
    private = "a very private text"
    with Device.open(folder) as device:
        device.delete_adapter("three")
        device.load_adapter(releases["old adapters"][2], positive="0")
        device.learn([private], ["1"], adapter="three")
        device.delete_adapter("three")
        for table in ("tasks", "active", "slots", "examples"):
            assert sql(folder, f"SELECT 1 FROM {table} WHERE adapter = 'three'") == []
        assert not any(private.encode() in file.read_bytes() for file in folder.glob("store*"))
    digests = {Bundle.open(releases[key]).digest for key in ("old",)}
    digests |= {Bundle.open(path).digest for path in releases["old adapters"][:2]}
    assert {file.stem for file in (folder / "bundles").iterdir()} == digests
    assert not any(private.encode() in file.read_bytes() for file in folder.glob("store*"))


@pytest.mark.parametrize("options", [{"key": lambda: bytes(32)}, {"keep_text": "never"}])
def test_encryption_and_keep_text_cover_all_tasks(tmp_path, releases, options):
    folder = tmp_path / "device"
    learned_device(folder, releases, ["one"], **options).close()
    key = {name: value for name, value in options.items() if name == "key"}
    with Device.open(folder, **key) as device:
        before = answers(device)
        device.replace(releases["new"], adapters=releases["new adapters"][:1])
        device.rollback()
        assert equal(answers(device), before)
        if key:
            device.rotate_key(lambda: bytes(31) + b"1")
            assert equal(answers(device), before)
            device.learn(["one more"], ["1"], adapter="one")
        for file in folder.glob("store*"):
            data = file.read_bytes()
            assert not any(text.encode() in data for text in TEXTS[:50])
