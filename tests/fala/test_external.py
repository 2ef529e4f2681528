"""Devices whose backbone is the app's own encoder."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import bridged
from bridged import PROBES, TEXTS
from bundles import repacked
from devices import live, same, state
from fala import Budget, Bundle, BundleError, DataError, Device, EncoderError, Item, UsageError
from fala.bundle.arrays import array_bytes
from fala_export import write_external


@pytest.fixture(scope="module")
def functions(releases):
    ages = {"cloud 1": "mid", "cloud 2": "new"}
    return {name: Bundle.open(releases[age]).backbone().encode for name, age in ages.items()}


@pytest.fixture(scope="module")
def external(tmp_path_factory, releases, functions):
    """The releases mid and new without their models, with a bridge between them."""
    folder = tmp_path_factory.mktemp("external")
    models = {age: Bundle.open(releases[age]) for age in ("mid", "new")}
    for version, (age, model) in zip("12", models.items(), strict=True):
        probes = dict(zip(PROBES[:16], functions[f"cloud {version}"](PROBES[:16]), strict=True))
        write_external(folder / f"{age}.fala", "cloud", version, model.head(), probes)
    mid, new = (Bundle.open(folder / f"{age}.fala") for age in models)
    bridge = replace(bridged.learned_bridge(*models.values()), source=mid.backbone_digest)
    bridged.add_bridge(new.path, new, bridge, {})
    return {"mid": mid.path, "new": new.path}


def test_an_external_encoder_equals_its_model(tmp_path, releases, external, functions, labels):
    with (
        Device.create(tmp_path / "inside", releases["mid"]) as inside,
        Device.create(tmp_path / "outside", external["mid"], encoder=functions) as outside,
    ):
        expected = live(inside, {"mid": releases["new"]}, labels, 30)
        states = live(outside, {"mid": external["new"]}, labels, 30)
    for state_inside, state_outside in zip(expected, states, strict=True):
        for values, others in zip(state_inside, state_outside, strict=True):
            np.testing.assert_allclose(values, others, atol=1e-6)
    with Device.open(tmp_path / "outside", encoder=functions) as again:
        assert same(state(again), states[-1])


def test_another_encoder_is_rejected(tmp_path, path, releases, external, functions):
    def wrong(inputs):
        return 2 * functions["cloud 1"](inputs)

    with pytest.raises(EncoderError, match="not cloud 1, which the release was made for: mean"):
        Device.create(tmp_path / "made", external["mid"], encoder=wrong)
    assert not (tmp_path / "made").exists()
    with Device.open(path, encoder=wrong) as device:
        before = state(device)
        with pytest.raises(EncoderError, match="on 16 probes"):
            device.replace(external["mid"], Budget(0))
        assert device.status().release == "old" and same(state(device), before)
    Device.create(tmp_path / "made", external["mid"], encoder=functions).close()
    another = Device.open(tmp_path / "made", encoder={"cloud 2": functions["cloud 2"]})
    with another, pytest.raises(EncoderError, match=r"encoder=\{'cloud 1': function\}"):
        another.predict_proba(PROBES)


def test_items_need_no_encoder(tmp_path, external, functions, labels):
    with Device.create(tmp_path / "texts", external["mid"], encoder=functions) as device:
        device.learn(TEXTS, labels)
        (expected, *_) = state(device)
    items, probes = (
        [Item(*pair) for pair in zip(texts, functions["cloud 1"](texts), strict=True)]
        for texts in (TEXTS, PROBES)
    )
    with Device.create(tmp_path / "items", external["mid"]) as device:
        device.remember(items[:20], labels[:20])
        with pytest.raises(EncoderError):  # there is no function for the text
            device.learn([*items[20:], "a text"], [*labels[20:], "1"])
        assert [row.example for row in device.examples()][-1] == "a text"
        assert device.fit().fitted == len(items)  # their vectors are kept with their labels
        np.testing.assert_allclose(device.predict_proba(probes), expected, atol=1e-6)
        with pytest.raises(EncoderError, match=r"^texts and keys .* encoder cloud 1: pass its"):
            device.predict_proba([*probes, *TEXTS[:3]])
        with pytest.raises(DataError, match="has 11 numbers; the release's encoder gives 12"):
            device.learn([Item("other", items[0].vector[:-1])], ["1"])
        with pytest.raises(EncoderError, match=r"encoder=\{'cloud 2'"):
            device.replace(external["new"])  # some keys are to be embedded
        report = device.replace(external["new"], Budget(0))  # over the bridge
        assert (report.decision, report.new) == ("personal", "cloud 2")
    with Device.open(tmp_path / "items", encoder=functions) as device:
        assert device.refine(Budget(20)).forward_passes > 0
        # The vector is of an earlier encoder: the app's function encodes the key.
        old = [Item(item, item.vector, encoder="cloud 1") for item in probes]
        assert same([device.predict_proba(old)], [device.predict_proba(PROBES)])
    with Device.create(tmp_path / "never", external["mid"], keep_text="never") as device:
        device.remember(items[:20], labels[:20])
        assert device.fit().fitted == 20


def test_releases_with_a_model_reject_items(device):
    with pytest.raises(DataError, match="old reads texts"):
        device.predict_proba([Item("key", np.zeros(8))])
    assert device.predict_proba(TEXTS[:1]).shape == (1, 2)


def test_write_external_rejects_wrong_arguments(tmp_path, releases):
    head, path = Bundle.open(releases["mid"]).head(), tmp_path / "x.fala"
    vector = np.ones(12)
    for name, version, probes in (
        ("", "1", {"a": vector}), ("n", "\n", {"a": vector}), ("n", "1", {}),
        ("n", "1", {"a": vector[:3]}), ("n", "1", {"a": vector * np.inf}),
        ("n", "1", {"a": vector * 1e5}), ("n", "1", {"a": vector, "b": 0 * vector}),
        ("n", "1", {"a": "text"}), ("n", "1", {"a" * 2000: vector}),
        ("n", "1", {str(at): vector for at in range(17)}),
    ):  # fmt: skip
        with pytest.raises(DataError):
            write_external(path, name, version, head, probes)
    assert not path.exists()
    bundles = []
    for version in "12":
        write_external(path, "n", version, head, {"a": vector})
        bundles.append(Bundle.open(path))
        assert (bundles[-1].encoder, bundles[-1].manifest.kind) == (f"n {version}", "external")
    assert bundles[0].backbone_digest != bundles[1].backbone_digest


def test_a_hostile_external_bundle_is_rejected(tmp_path, releases):
    path, embeddings = tmp_path / "x.fala", "encoder/embeddings.npy"
    write_external(path, "n", "1", Bundle.open(releases["mid"]).head(), {"a": np.ones(12)})
    for files, fields in (
        ({"encoder/inputs.json": b'["a", 5]'}, {}),
        ({"encoder/inputs.json": b'["\\ud800"]'}, {}),
        ({embeddings: array_bytes(np.ones((1, 12)))}, {}),
        ({embeddings: array_bytes(np.full((1, 12), 1e38, np.float32))}, {}),
        ({embeddings: array_bytes(np.zeros((1, 12), np.float32))}, {}),
        ({embeddings: None}, {}), ({}, {"name": " "}),
    ):  # fmt: skip
        (tmp_path / "y.fala").write_bytes(repacked(path, files, **fields))
        with pytest.raises(BundleError):
            Bundle.open(tmp_path / "y.fala")


@pytest.mark.parametrize("method", ["learn", "predict"])
def test_an_encoder_that_uses_the_device_is_refused(tmp_path, external, functions, method):
    """It would be asked again forever, even at its first use or while a release is on trial."""
    opened, errors = [], []

    def encoder(texts):
        try:
            for device in opened:
                device.learn(["more"], ["1"]) if method == "learn" else device.predict(["more"])
        except UsageError as error:
            errors.append(str(error))
        return functions["cloud 1"](texts)

    Device.create(tmp_path / "device", external["mid"], encoder=encoder).close()
    with Device.open(tmp_path / "device", encoder=encoder) as device:
        opened.append(device)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(device.predict, PROBES[:2]).result(timeout=20).tolist()
            assert pool.submit(device.learn, ["a text"], ["1"]).result(timeout=20).labelled
    assert errors and all("uses a device that asks the same encoder" in each for each in errors)
