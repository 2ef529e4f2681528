"""Replacements without a bridge."""

import shutil

import bridged
from bridged import PROBES, TEXTS
from devices import loss, same, sql, state
from fala import Budget, Device


def test_old_logits_help_where_labels_are_few(tmp_path, unbridged):
    """Old logits of texts without a label are fitted to beside labels."""
    truth = bridged.planted_labels(unbridged["old"], PROBES)
    folder = tmp_path / "device"
    with Device.create(folder, unbridged["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(unbridged["old"], TEXTS))
    # Most labels are removed: only the old logits reflect them.
    sql(folder, "UPDATE examples SET label = NULL WHERE id > 12")
    losses = []
    for forget in (False, True):
        copy = shutil.copytree(folder, tmp_path / str(forget))
        with Device.open(copy) as device:
            if forget:
                device.forget([row.id for row in device.examples(labelled=False)])
            report = device.replace(unbridged["mid"], Budget(90))
            assert report.labelled == 12
            losses.append(loss(device, truth))
    assert losses[0] < losses[1]


def test_stored_embeddings_cost_nothing(tmp_path, unbridged, encoded):
    with Device.create(tmp_path / "device", unbridged["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(unbridged["old"], TEXTS))
        device.replace(unbridged["mid"], Budget(20))
        first = state(device)
        device.rollback()
        assert not same(state(device), first)
        encoded.clear()
        report = device.replace(unbridged["mid"], Budget(0))
        assert report.forward_passes == len(encoded) - report.counts.probes == 0
        assert report.counts.representatives == 20
        # The first fit, too, was to the float16 numbers that embeddings are kept in.
        assert same(state(device), first)


def test_a_replacement_is_deterministic(tmp_path, unbridged):
    with Device.create(tmp_path / "device", unbridged["old"]) as device:
        device.learn(TEXTS, ["0", "1", None] * 30)
    states = []
    for name in "ab":
        with Device.open(shutil.copytree(tmp_path / "device", tmp_path / name)) as device:
            device.replace(unbridged["mid"], Budget(25))
            states.append(state(device))
    assert same(*states)
