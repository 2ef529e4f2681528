"""After ``unlabel`` a device equals one that has the examples, and never had their labels."""

import shutil

import numpy as np
import pytest

import bridged
import rated
import tagged
from bridged import GONE, PROBES, TEXTS
from devices import (
    TOLERANCE,
    assert_alike,
    everything,
    left_of,
    refine_all,
    same,
    sql,
    state,
    vendor_of,
)
from fala import Budget, DataError, Device, Item, Match, Pair, UnknownAdapterError
from fala.testing import PowerCuts


def labels_of(device):
    return {row.example: row.label for row in device.examples()}


def both(tmp_path, release, act, labels, withdrawn=GONE, examples=TEXTS):
    """A device whose labels are withdrawn at the end, and one that never had them."""
    label_of = dict(zip(examples, labels, strict=True))

    def given(text, label=None):
        return label or label_of[text]

    def kept(text, label=None):
        return None if text in withdrawn else given(text, label)

    with (
        Device.create(tmp_path / "withdrawn", release) as device,
        Device.create(tmp_path / "never", release) as reference,
    ):
        act(device, given)
        act(reference, kept)
        assert labels_of(device) != labels_of(reference)
        report = device.unlabel(withdrawn)
        expected = reference.fit()
        assert labels_of(device) == labels_of(reference)
        assert (report.examples, report.labelled, report.fitted, report.decision) == (
            expected.examples, expected.labelled, expected.fitted, expected.decision,
        )  # fmt: skip
        assert_alike(device, reference)
        yield device, reference
        if device.status().can_roll_back:
            for _ in range(2):
                device.rollback()
                reference.rollback()
                assert_alike(device, reference)


def learn(device, label):
    device.learn(TEXTS, [label(text) for text in TEXTS])


def learn_and_change(device, label):
    """Labels are changed twice before they are withdrawn."""
    learn(device, label)
    device.learn(GONE, [label(text, "1") for text in GONE])
    device.learn(GONE[:4], [label(text, "0") for text in GONE[:4]])


def replace_at_once(device, label, releases):
    device.learn(TEXTS, [None if at % 3 == 1 else label(text) for at, text in enumerate(TEXTS)])
    device.replace(releases["mid"], Budget(0))


def replace_and_refine(device, label, releases):
    learn(device, label)
    device.replace(releases["mid"], Budget(90))
    refine_all(device)


def replace_and_change(device, label, releases):
    """The previous model was fitted to labels that were changed since."""
    replace_at_once(device, label, releases)
    for text in GONE[:5]:
        device.learn([text], [label(text, "1")])


def replace_and_roll_back(device, label, releases):
    replace_at_once(device, label, releases)
    device.rollback()
    device.learn(GONE[:3], [label(text, "1") for text in GONE[:3]])


@pytest.mark.parametrize("act", [learn, learn_and_change], ids=lambda act: act.__name__)
def test_labels_are_withdrawn(tmp_path, releases, labels, act):
    for device, _ in both(tmp_path, releases["old"], act, labels):
        assert sql(tmp_path / "withdrawn", "SELECT * FROM earlier_labels") == []
        assert device.learn([TEXTS[0]], ["1"]).labelled == len(TEXTS) - len(GONE) + 1


@pytest.mark.parametrize(
    "act",
    [replace_at_once, replace_and_refine, replace_and_change, replace_and_roll_back],
    ids=lambda act: act.__name__,
)
def test_labels_are_withdrawn_after_a_replacement(tmp_path, releases, labels, act):
    def acts(device, label):
        act(device, label, releases)

    tables = (
        "SELECT id, label, labelled_data FROM examples ORDER BY id",
        "SELECT * FROM earlier_labels ORDER BY 1, 2",
        "SELECT name, loss, fit_examples FROM slots ORDER BY 1",
    )
    for _ in both(tmp_path, releases["old"], acts, labels):
        for query in tables[:2]:
            rows, expected = (sql(tmp_path / name, query) for name in ("withdrawn", "never"))
            assert [row[:2] for row in rows] == [row[:2] for row in expected]
        assert [row[2] for row in sql(tmp_path / "withdrawn", tables[2])] == [
            row[2] for row in sql(tmp_path / "never", tables[2])
        ]


def test_withdrawing_later_labels_keeps_old_logits(tmp_path, releases, labels):
    query = "SELECT model, value FROM logits ORDER BY 1, 2"
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS[:60], labels[:60])
        device.remember(TEXTS[60:])
        device.replace(releases["mid"], Budget(0))
        before = sql(tmp_path / "device", query)
        device.learn(TEXTS[60:], labels[60:])
        device.unlabel(TEXTS[60:])
        assert sql(tmp_path / "device", query) == before != []
        device.unlabel(TEXTS[:1])
        assert sql(tmp_path / "device", query) != before


def test_a_chain_drops_old_logits_that_were_fitted_to_a_label(tmp_path, releases, labels):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS, [None if at % 3 == 0 else label for at, label in enumerate(labels)])
        device.replace(releases["mid"], Budget(20))
        device.replace(releases["new"], Budget(20))
        before = {model for (model,) in sql(tmp_path / "device", "SELECT model FROM logits")}
        device.unlabel(TEXTS[1:2])
        after = {model for (model,) in sql(tmp_path / "device", "SELECT model FROM logits")}
        # The vendor's own logits may stay: they depend on no label.
        assert len(before & after) <= 1
        assert np.isfinite(device.predict_proba(PROBES)).all()


def test_without_any_label_the_vendors_model_is_active(device, releases):
    report = device.unlabel(TEXTS)
    assert (report.examples, report.labelled, report.fitted) == (len(TEXTS), 0, 0)
    assert report.decision == "vendor" and device.model.is_vendor
    np.testing.assert_array_equal(device.predict_proba(PROBES), vendor_of(releases["old"]))
    assert device.learn(TEXTS[:1], ["1"]).labelled == 1


def test_unknown_examples_and_those_without_a_label_are_ignored(device):
    device.remember(["no label yet"])
    device.fit()
    before, kept = state(device), labels_of(device)
    report = device.unlabel(["never seen", "no label yet"])
    assert (report.examples, report.labelled) == (len(TEXTS) + 1, len(TEXTS))
    assert device.unlabel(iter([])).labelled == len(TEXTS)
    assert same(state(device), before) and labels_of(device) == kept


def test_none_keeps_a_label_and_unlabel_withdraws_it(device, labels):
    device.learn(TEXTS[:1], [None])
    assert labels_of(device)[TEXTS[0]] == labels[0]
    device.unlabel([TEXTS[0], TEXTS[0]])
    (row,) = device.examples(labelled=False)
    assert (row.example, row.label, row.labelled) == (TEXTS[0], None, None)
    device.learn(TEXTS[:1], ["1"])
    assert labels_of(device)[TEXTS[0]] == "1"


@pytest.mark.parametrize("wrong", [None, 5, "one", [5.0], [Match((), "a")], [None]], ids=str)
def test_wrong_examples_are_rejected(device, wrong):
    before = labels_of(device)
    with pytest.raises(DataError):
        device.unlabel(wrong)
    with pytest.raises(UnknownAdapterError):
        device.unlabel(TEXTS, adapter="none")
    assert labels_of(device) == before


# Kinds of examples, labels and folders


def test_pairs_and_matches(tmp_path, releases, labels):
    with Device.create(tmp_path / "pairs", releases["old"]) as device:
        pairs = [Pair(text, "other") for text in TEXTS]
        device.learn(pairs, labels)
        assert device.unlabel(pairs[:3]).labelled == len(TEXTS) - 3
        assert device.unlabel([f"{TEXTS[3]}\x1eother"]).labelled == len(TEXTS) - 4
    (tmp_path / "matching").mkdir()
    matching = bridged.write_releases(tmp_path / "matching", "matching")
    matches = list(dict.fromkeys(bridged.matches(texts=TEXTS)))
    with Device.create(tmp_path / "matches", matching["old"]) as device:
        device.learn(matches, bridged.planted_labels(matching["old"], matches))
        assert device.unlabel(matches[::7]).labelled == len(matches) - len(matches[::7])
        assert {row.example for row in device.examples(labelled=False)} == {*matches[::7]}


def test_items(tmp_path):
    from fala_export import fit_head, write_external

    vectors = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    items = [Item(f"{row}.jpg", vector) for row, vector in enumerate(vectors)]
    answers = (vectors[:, 0] > 0).astype(int)
    write_external(tmp_path / "x.fala", "x", "1", fit_head(vectors, answers), {"0.jpg": vectors[0]})
    with Device.create(tmp_path / "device", tmp_path / "x.fala") as device:
        device.learn(items, answers)
        assert device.unlabel(items[:5]).labelled == 35
        assert device.unlabel(["7.jpg"]).labelled == 34


@pytest.mark.parametrize("kind", ["tags", "ratings"])
def test_tags_and_ratings(tmp_path, kind):
    texts = tagged.TEXTS[:60]
    labels = tagged.OWN[:60] if kind == "tags" else [1 + at % 5 for at in range(60)]
    write = tagged.write_releases if kind == "tags" else rated.write_releases
    releases = write(tmp_path / "releases")
    results = []
    for name, first in (("withdrawn", labels), ("never", [None] * 10 + labels[10:])):
        with Device.create(tmp_path / name, releases["old"]) as device:
            device.learn(texts, first)
            device.replace(releases["mid"], Budget(0))
            if name == "withdrawn":
                assert device.unlabel(texts[:10]).labelled == 50
            device.fit()
            results.append((device.model.weight, device.model.lexical, device.predict(PROBES)))
            device.rollback()
            results[-1] += (device.model.weight, device.model.lexical)
    for values, expected in zip(*results, strict=True):
        if values.dtype == object:
            assert values.tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(values, expected, atol=TOLERANCE)


@pytest.mark.parametrize(
    "options", [{"key": lambda: bytes(32)}, {"keep_text": "never"}],
    ids=lambda options: "".join(map(str, options)),
)  # fmt: skip
def test_encrypted_folders_and_those_without_texts(tmp_path, releases, labels, options):
    with Device.create(tmp_path / "device", releases["old"], **options) as device:
        device.learn(TEXTS, labels)
        device.replace(releases["mid"], Budget(0))
        assert device.unlabel(GONE).labelled == len(TEXTS) - len(GONE)
        before = state(device)
    key = {name: value for name, value in options.items() if name == "key"}
    with Device.open(tmp_path / "device", **key) as device:
        assert same(state(device), before)
        assert sum(1 for _ in device.examples(labelled=False)) == len(GONE)


# Overwriting, and kills


def test_no_byte_of_a_label_is_left(tmp_path):
    """Unmistakable labels, which changed and were fitted to, are counted in the files."""
    names = ("unmistakable-one", "unmistakable-two", "unmistakable-three")
    releases = bridged.write_releases(tmp_path, labels=names)

    def counted(folder):
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
                assert counted(folder)[2] > 1
                device.unlabel(GONE)
            assert device.forget([]).overwritten
        counts.append(counted(folder))
    assert counts[0] == counts[1]


def test_a_repair_that_kept_the_damaged_store_is_cleaned(path):
    """The copy that a repair set aside has the label, too."""
    with Device.open(path) as device:
        device.learn(["a text"], ["1"])
    sql(path, "UPDATE slots SET weight = x'00'")
    aside = path / Device.repair(path).aside
    assert aside.exists()
    with Device.open(path) as device:
        device.unlabel(["never seen"])
        assert aside.exists()  # nothing was withdrawn
        device.unlabel(["a text"])
        assert not aside.exists()


@pytest.mark.parametrize("unsynced", ["kept", "lost"])
def test_a_killed_unlabel_withdraws_all_labels_or_none(path, tmp_path, unsynced):
    withdrawn = TEXTS[:20]

    def unlabel(folder, say):
        with Device.open(folder) as device:
            say(device.unlabel(withdrawn).labelled)

    with Device.open(path) as device:
        before = state(device)
    with Device.open(shutil.copytree(path, tmp_path / "whole")) as device:
        device.unlabel(withdrawn)
        after = state(device)
    counts = []
    cuts = PowerCuts(unlabel, path, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "delete"}, unsynced=unsynced):
        with Device.open(cut.folder) as device:
            counts.append(sum(1 for _ in device.examples(labelled=True)))
            assert same(state(device), before if counts[-1] == len(TEXTS) else after)
        assert counts[-1] == len(TEXTS) - 20 or not cut.said
    assert set(counts) == {len(TEXTS), len(TEXTS) - 20}
    assert left_of(path, withdrawn) and everything(path)  # the texts stay
