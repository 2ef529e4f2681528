"""One more label for an example that has one: the example counts once."""

import bridged
from bridged import TEXTS
from fala.device import Device


def test_a_relabelled_example_is_counted_once(tmp_path, releases):
    texts = [f"{first} {second}" for first in TEXTS[:20] for second in TEXTS[20:35]]
    labels = bridged.planted_labels(releases["old"], texts)
    others = ["10"[int(label)] for label in labels[:30]]
    with Device.create(tmp_path / "device", releases["old"]) as device:
        assert device.learn(texts, labels).fitted == 300
        report = device.learn(texts[:30], others)
        assert not report.exact
        assert (report.examples, report.labelled, report.fitted) == (300, 300, 300)
