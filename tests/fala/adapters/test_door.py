"""Several tasks share one backbone: each is an adapter of a device."""

import gc

import numpy as np
import pytest

import fala
from adapter_releases import NAMES, PROBES, TEXTS, answers, equal, labels_of, learned_device
from bundles import DIMENSION, write_word_vector_release
from devices import left_of, sql
from fala import Bundle, Device, Pair
from fala.backbones import OnnxEncoder
from fala.model.heads import Head
from fala.model.links import Rating
from tasks import write_task

pytestmark = pytest.mark.slow


def test_loading_an_adapter_does_not_change_other_tasks(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, labels_of(""))
        expected = answers(device)
        for name, path in zip(NAMES, releases["old adapters"], strict=True):
            assert device.load_adapter(path) == name
            device.learn(TEXTS, labels_of(name), adapter=name)
            now = answers(device)
            assert equal({task: now[task] for task in expected}, expected)
            expected = now
        assert device.status().adapters == ("one", "three", "two")
        device.delete_adapter("two")
        del expected["two"]
        assert equal(answers(device), expected)
        # All tasks share one loaded transformer.
        assert len({id(each) for each in gc.get_objects() if isinstance(each, OnnxEncoder)}) == 1
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
        best = (PROBES[expected[:, 0].argmax()], expected[:, 0].max())
        assert device.rank(PROBES, adapter=name, top=1) == [best]
        device.learn([Pair("good film", "a bad film")], ["1"], adapter=name)
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

    def load_on_words():
        write_task(tmp_path / "task.fala", Bundle.open(words), "task", layers=1, size=3)
        with Device.create(tmp_path / "words", words) as other:
            other.load_adapter(tmp_path / "task.fala")

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
        (fala.BundleFormatError, "an adapter for a backbone that takes none", load_on_words),
    ):  # fmt: skip
        for call in calls:
            with pytest.raises(error, match=match):
                call()
    assert equal(answers(device), before)
    assert len(list((tmp_path / "device" / "bundles").iterdir())) == 4


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
    others = releases["new adapters"]
    labels = dict(zip((*NAMES, "stars"), (*others, others[0]), strict=True))
    with pytest.raises(fala.BundleMismatchError, match=r"this device does .* 'stars' from 1 to 5"):
        device.replace(releases["new"], adapters=labels)
    report = device.replace(releases["new"], adapters=[*others, paths["new"]])
    assert set(report.adapters["stars"].scores) <= {"rmse", "rank_correlation"}


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


def test_every_task_has_its_own_examples(device, tmp_path):
    """The tasks share texts, but not their labels."""
    rows, before = list(device.examples(adapter="one")), answers(device)
    assert len(rows) == 40 and {row.adapter for row in rows} == {"one"}
    assert device.forget([row.id for row in rows]).count == 0  # of another task
    assert device.export_data(tmp_path / "one.jsonl", adapter="one") == 40
    assert device.unlabel([TEXTS[4]], adapter="one").labelled == 39
    withdrawn = answers(device)
    assert device.forget(where=lambda row: row.example == TEXTS[5], adapter="one").count == 1
    after = answers(device)
    for name in before:
        own = name == "one"
        assert np.array_equal(before[name], withdrawn[name]) != own
        assert np.array_equal(withdrawn[name], after[name]) != own
        if not own:
            status = device.status(adapter=name or None)
            assert (status.examples, status.labelled) == (40, 40)
    device.forget(where=lambda row: True, adapter="one")
    assert device.status(adapter="one").decision == "vendor"


def test_deleting_a_task_deletes_its_data(folder, releases):
    private = "a very private text"
    with Device.open(folder) as device:
        device.learn([private], ["1"], adapter="three")
        ((backbone,),) = sql(folder, "SELECT backbone FROM slots WHERE adapter = 'three'")
        vectors = f"SELECT 1 FROM embeddings WHERE backbone = '{backbone}'"
        assert sql(folder, vectors)
        device.delete_adapter("three")
        assert sql(folder, vectors) == []
        for table in ("tasks", "active", "slots", "examples"):
            assert sql(folder, f"SELECT 1 FROM {table} WHERE adapter = 'three'") == []
        assert left_of(folder, [private]) == []
    kept = [releases["old"], *releases["old adapters"][:2]]
    assert {file.stem for file in (folder / "bundles").iterdir()} == {
        Bundle.open(path).digest for path in kept
    }


@pytest.mark.parametrize("options", [{"key": lambda: bytes(32)}, {"keep_text": "never"}])
def test_encryption_and_keep_text_cover_all_tasks(tmp_path, releases, options):
    folder = tmp_path / "device"
    with learned_device(folder, releases, ["one"], **options) as device:
        before = answers(device)
        device.replace(releases["new"], adapters=releases["new adapters"][:1])
        device.rollback()
        if "key" in options:
            device.rotate_key(lambda: bytes(31) + b"1")
        assert equal(answers(device), before)
        assert left_of(folder, TEXTS[:41]) == []
