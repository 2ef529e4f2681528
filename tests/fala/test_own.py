"""Devices of an app's own labels and encoder, without a vendor."""

import numpy as np
import pytest

import fala
from fala import Budget, BudgetError, DataError, Device, EncoderError, Item, UsageError
from fala.backbones.external import ASKED, Encoders
from fala.slots.admit import admit
from fala.testing import labels_of, texts

TEXTS = [texts()[position] for position in np.random.default_rng(0).permutation(192)]
LEARNED, UNSEEN = TEXTS[:96], TEXTS[96:]


@pytest.fixture
def old(fala_encoders):
    """The app's encoder, which takes the mean of word vectors."""
    return fala_encoders["glove"]


@pytest.fixture
def new(fala_encoders):
    """The app's next encoder, which is a transformer."""
    return fala_encoders["bert"]


@pytest.fixture
def device(tmp_path, old):
    """A device that has learned two labels."""
    with Device.create(tmp_path / "device", labels=["fine", "rude"], encoder=old) as device:
        device.learn(LEARNED, labels_of(LEARNED))
        yield device


def right(device, texts=UNSEEN, truth=None):
    """Return the share of some texts that a device decides right."""
    truth = np.array(labels_of(texts) if truth is None else truth)
    return np.mean(device.predict(texts) == truth)


def test_labels_and_an_encoder_make_a_device(device, old, new):
    assert device.labels == ("fine", "rude") and device.status().release == "WordVectors 100"
    assert right(device) > 0.9
    before = device.predict_proba(UNSEEN)
    device.close()
    with Device.open(device._folder.path, encoder=old) as again:
        np.testing.assert_array_equal(again.predict_proba(UNSEEN), before)
    for encoder, message in (
        (None, "pass its function as encoder="),
        (new, r"not WordVectors 100.*Device.replace\(encoder="),
    ):
        opened = Device.open(device._folder.path, encoder=encoder)
        with opened as again, pytest.raises(EncoderError, match=message):
            again.predict(UNSEEN)


def test_equal_labels_and_encoders_share_a_release_that_the_door_admits(tmp_path, old):
    shared = fala.Releases(tmp_path / "releases")
    for user in ("ann", "bob"):
        Device.create(tmp_path / user, labels=[0, 1], encoder=old, releases=shared).close()
    (digest,) = shared
    assert shared.devices(digest) == 2
    release = admit(tmp_path / "releases" / f"{digest}.fala", None, Encoders(old))
    assert release.own and release.backbone.load().dimension == 100


def test_tags_are_learned_added_and_carried_over(tmp_path, old, new):
    rude = [{"rude"} if label == "rude" else set() for label in labels_of(LEARNED)]
    both = [tags | {"sport"} if "match" in text else tags
            for text, tags in zip(LEARNED, rude, strict=True)]  # fmt: skip
    with Device.create(tmp_path / "tags", tags=["rude"], encoder=old) as device:
        assert device.predict(["A text"]).tolist() == [frozenset()]
        device.learn(LEARNED, rude)
        device.add_labels(["sport"])
        device.learn(LEARNED, both)
        device.replace(encoder=new, budget=Budget(forward_passes=96))
        assert device.labels == ("rude", "sport") and right(device, LEARNED, both) > 0.8


def test_ratings_begin_in_the_middle_of_their_range(tmp_path, old):
    stars = np.where(np.array(labels_of(LEARNED)) == "rude", 2, 5)
    with Device.create(tmp_path / "stars", ratings=(1, 5), encoder=old) as device:
        assert device.predict(["A text"]).tolist() == [3.0]
        device.learn(LEARNED, stars)
        assert np.abs(device.predict(LEARNED) - stars).mean() < 0.75
        with pytest.raises(UsageError, match="the rating 'rating' from 1 to 5, and no labels"):
            device.add_labels(["kind"])


def test_items_need_a_dimension_alone_and_new_vectors_after_a_replacement(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 8))
    turned = vectors @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
    liked = (vectors[:, 0] > 0).astype(int)
    old, new = ([Item(str(key), row) for key, row in enumerate(rows)] for rows in (vectors, turned))
    with Device.create(tmp_path / "items", labels=[0, 1], dimension=8) as device:
        device.learn(old, liked)
    with Device.open(tmp_path / "items") as device:
        assert device.status().release == "vectors 8" and right(device, old, liked) > 0.9
        with pytest.raises(DataError, match="has 3 numbers"):
            device.predict([Item("41.jpg", [1, 2, 3])])
        with pytest.raises(DataError, match="whether this is the same one cannot be known"):
            device.replace(dimension=8)
        device.replace(dimension=8, encoder={"second": None})
        assert device.learn(new).labelled == 40 and right(device, new, liked) > 0.9


def test_a_function_of_keys_is_not_asked_with_a_dimension(tmp_path):
    embed = {"a.jpg": [1, 0], "b.jpg": [0, 1]}.__getitem__

    def embedded(keys):
        return [embed(key) for key in keys]

    with pytest.raises(EncoderError, match=r"KeyError in line .* if you pass its dimension="):
        Device.create(tmp_path / "keys", labels=[0, 1], encoder=embedded)
    with Device.create(tmp_path / "keys", labels=[0, 1], encoder=embedded, dimension=2) as device:
        device.learn(["a.jpg", "b.jpg"], [0, 1])
        assert device.status().release == "embedded 2"
        assert device.predict(["b.jpg"]).tolist() == [1]


class Model:
    def encode(self, inputs):
        return np.ones((len(inputs), 3))

    def __call__(self, features):
        raise AttributeError("no texts, please")


NAMES = {"labels": ["a", "b"]}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, UsageError, "not none"),
        ({"labels": "ab", "tags": "c"}, UsageError, "not labels= and tags="),
        ({**NAMES, "trust": bytes(32)}, UsageError, "trust= is the key of a vendor"),
        ({"labels": ["a"]}, DataError, "two or more names or integers, not 1"),
        ({"labels": ["a", "a"]}, DataError, "distinct"),
        ({"labels": ["a", 1]}, DataError, "all names or all integers"),
        ({"labels": ["a", "b\n"]}, DataError, r"labels\[1\]"),
        ({"tags": []}, DataError, "tags must be 1 to"),
        ({"ratings": (5, 1)}, DataError, "the lowest and the highest"),
        ({"ratings": (1, float("nan"))}, DataError, "the lowest and the highest"),
        ({**NAMES, "encoder": None}, DataError, "pass encoder=.*or dimension="),
        ({**NAMES, "encoder": Model()}, DataError, "like model.encode"),
        ({**NAMES, "encoder": {" ": len}}, DataError, "an encoder's name"),
        ({**NAMES, "dimension": 0}, DataError, "dimension must be"),
        ({**NAMES, "encoder": {"x": len, "y": len}}, DataError, "2 functions"),
        ({**NAMES, "encoder": lambda texts: np.ones(len(texts))}, EncoderError,
         r"shape \(11,\) for 11 inputs; \(11, d\)"),
        ({**NAMES, "encoder": lambda texts: np.random.default_rng().normal(size=(len(texts), 9))},
         EncoderError, "deterministic"),
        ({**NAMES, "encoder": lambda texts: np.eye(len(texts))}, EncoderError, "in their order"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_make_a_device_are_refused(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        Device.create(tmp_path / "device", **{"encoder": Model().encode, **arguments})
    assert not (tmp_path / "device").exists()


def test_another_encoder_takes_over_what_was_learned(device, new):
    device.remember(UNSEEN[:48])  # without labels: the old model's logits are carried over
    device.fit()
    folder = device._folder.path
    assert device.replace(encoder=new, budget=Budget(forward_passes=0)).decision == "personal"
    assert right(device) > 0.8  # n-grams alone
    device.rollback()
    preview = device.preview(encoder=new)
    assert (preview.old, preview.new) == ("WordVectors 100", "OnnxEncoder 64")
    report = device.replace(encoder=new, budget=Budget(forward_passes=100))
    assert report.decision == "personal" and report.forward_passes == 100
    assert report.comparison.releases is None and right(device) > 0.8
    device.close()
    with Device.open(folder, encoder=new) as again:
        assert right(again) > 0.8
        again.rollback()
        with pytest.raises(EncoderError, match="not WordVectors 100"):
            again.predict(UNSEEN)
        again.rollback()
        again.replace(encoder=new)  # as an app repeats it after a kill: nothing is lost
        assert again.status().can_roll_back


def test_nothing_is_installed_that_has_learned_nothing(tmp_path, old, new):
    with Device.create(
        tmp_path / "device", labels=["fine", "rude"], encoder=old, keep_text="never"
    ) as device:
        device.learn(LEARNED, labels_of(LEARNED))
        before = device.predict_proba(UNSEEN)
        with pytest.raises(BudgetError, match=r"nothing of the 96 examples.*Nothing was"):
            device.replace(encoder=new)
        np.testing.assert_array_equal(device.predict_proba(UNSEEN), before)


@pytest.mark.parametrize("learned", [True, False])
def test_a_vendors_device_goes_over_to_an_encoder_of_the_app(tmp_path, fala_releases, new, learned):
    """The new head knows nothing: the vendor's head counts, and what the user has taught."""
    with Device.create(tmp_path / "device", fala_releases["glove"]) as device:
        device.learn(LEARNED, labels_of(LEARNED) if learned else None)
        before = device.predict(UNSEEN)
        report = device.replace(encoder=new, budget=Budget(forward_passes=96))
        assert report.decision == "personal" and device.labels == ("fine", "rude")
        device.forget([1, 2, 3])
        assert np.mean(device.predict(UNSEEN) == before) > (0.8 if learned else 0.9)


def test_a_vendors_release_takes_the_place_of_an_encoder_of_the_app(device, fala_releases):
    before = device.predict(UNSEEN)
    device.remember(UNSEEN)
    report = device.replace(fala_releases["bert"], Budget(forward_passes=100))
    assert report.new == "bert" and report.comparison.releases is None and right(device) > 0.8
    assert report.examples == report.labelled + len(UNSEEN) - report.waiting
    np.testing.assert_array_equal(device.compare(UNSEEN).before, before)
    with pytest.raises(UsageError, match="come with the vendor's release"):
        device.add_labels(["kind"])
    device.close()
    with Device.open(device._folder.path) as again:
        with pytest.raises(EncoderError, match="pass its function as encoder="):
            again.compare(UNSEEN)
        assert again.status().on_trial  # it is no fault of the release on trial


def test_the_name_tells_encoders_apart(device, old, new):
    def turned(texts):
        return old(texts)[:, ::-1]

    before = device.predict_proba(UNSEEN)
    for arguments, error, message in (
        ({"encoder": {"WordVectors 100": new}}, DataError,
         "of 100 dimensions, and this one has 64; tell .* names"),
        ({"encoder": {"WordVectors 100": turned}}, DataError, "another encoder of the name"),
        ({}, UsageError, "pass your next encoder"),
        ({"bundle": "x.fala", "encoder": new}, UsageError, "cannot be passed with a vendor's rel"),
        ({"encoder": new, "trust": bytes(32)}, UsageError, "trust="),
        ({"bundle": new}, DataError, "bundle must be a path.*; an encoder .* as encoder="),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            device.replace(**arguments)
    with pytest.raises(DataError, match=r"bundle must be a path, not a list; labels .* as labels="):
        Device.create(device._folder.path / "new", ["fine", "rude"], encoder=new)
    assert device.replace(encoder={"turned": turned})
    np.testing.assert_allclose(device.predict_proba(UNSEEN), before, atol=0.05)


def test_labels_are_added_without_encoding(device, old):
    three = ["sport" if "match" in text else label
             for text, label in zip(UNSEEN, labels_of(UNSEEN), strict=True)]  # fmt: skip
    with pytest.raises(fala.UnknownLabelError, match=r"one of fine, rude; device.add_labels"):
        device.learn(["A text"], ["sport"])
    assert device.add_labels(["rude", "fine"]).labelled == 96  # they exist
    folder = device._folder.path
    device.close()
    with Device.open(folder) as again:  # no encoder is asked
        report = again.add_labels(["sport", "news"])
        assert report.labelled == 96 and report.decision == "personal"
        with pytest.raises(DataError, match="labels must be 1 to"):
            again.add_labels([])
    with Device.open(folder, encoder=old) as again:
        assert again.labels == ("fine", "rude", "sport", "news") and not again.status().on_trial
        assert right(again) > 0.8
        again.learn(UNSEEN, three)
        assert right(again, truth=three) > 0.85
        assert again.fit().scales == (3.0, 3.0, 0.0, 1.0)  # for any number of labels
        again.rollback()
        assert again.labels == ("fine", "rude") and right(again) > 0.8


def test_many_users_go_over_to_one_encoder(tmp_path, old, new):
    folders, asked = [tmp_path / name for name in ("ann", "bob", "eve")], []
    for folder, labels in zip(folders, (["fine", "rude"], ["rude", "fine"], [0, 1]), strict=True):
        with Device.create(folder, labels=labels, encoder=old) as device:
            if folder.name != "eve":
                device.learn(LEARNED, labels_of(LEARNED))

    def encode(texts):
        asked.extend(texts)
        return new(texts)

    several = {"encoder": {"net": encode}, "workers": 1, "budget": Budget(96)}
    done = fala.replace_all(folders, **several)
    assert (done.new, done.replaced, done.failed, done.personal) == ("net", 3, 0, 2)
    assert len(set(asked)) == len(asked) - 2 * len(ASKED) > 90  # each text once
    assert fala.replace_all(folders, **several).already == 3
    with pytest.raises(UsageError, match="pass your next encoder"):
        fala.replace_all(folders)


def test_a_damaged_folder_is_repaired_without_a_vendor(tmp_path, old, new):
    folder, key = tmp_path / "device", lambda: bytes(32)
    with Device.create(folder, ratings=(0, 10), encoder=old, key=key) as device:
        device.learn(LEARNED, [10 * (label == "rude") for label in labels_of(LEARNED)])
        device.replace(encoder=new)
        (folder / "bundles" / f"{device._own.snapshot().active.record.bundle}.fala").unlink()
    assert Device.repair(folder, key=key).active == "WordVectors 100"
    with Device.open(folder, encoder=old, key=key) as device:
        rude = np.array(labels_of(UNSEEN)) == "rude"
        assert device.predict(UNSEEN)[rude].mean() > 5 > device.predict(UNSEEN)[~rude].mean()


def test_an_encoder_is_asked_for_its_probes_once_per_process_and_at_each_opening_on_trial(tmp_path):
    def encode(texts):
        asked.extend(texts)
        return [[len(text), 1.0] for text in texts]

    def asked_for_a_prediction(**encoders):
        asked.clear()
        with Device.open(tmp_path / "device", encoder=encoders) as device:
            device.predict(["A text"])
        return len(asked)

    asked = []
    with Device.create(tmp_path / "device", labels=[0, 1], encoder={"first": encode}) as device:
        device.learn(["a", "bb"], [0, 1])
    assert [asked_for_a_prediction(first=encode) for _ in range(2)] == [1, 1]
    with Device.open(tmp_path / "device", encoder={"first": encode}) as device:
        device.replace(encoder={"second": encode})
    assert min(asked_for_a_prediction(first=encode, second=encode) for _ in range(2)) > 1
