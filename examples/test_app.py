"""An app's own tests, with the fixtures of ``fala.testing``: pytest examples/test_app.py."""

import errno

import pytest

import fala
from fala.testing import labels_of, texts

TEXTS = texts()[:40]


class App:
    """A filter of rude messages that learns from its user."""

    def __init__(self, folder):
        self.device = fala.Device.open(folder)

    def hide(self, message):
        """Whether a message is hidden."""
        return self.device.predict([message]) == ["rude"]

    def label(self, message, label):
        """Learn the user's label, and thank the user."""
        self.device.learn([message], [label])
        return "Thank you!"


def test_the_app_learns(fala_folder):
    app = App(fala_folder("glove", TEXTS, labels_of(TEXTS)))
    assert app.label("Ask my neighbour.", "rude") == "Thank you!"
    assert app.hide("What a lovely film about the match, once again.")


def test_acknowledged_labels_are_kept(fala_folder, fala_power_cuts):
    def use(folder, say):
        app = App(folder)
        for message in ("Ask my neighbour.", "See you at the match."):
            app.label(message, "rude")
            say(message)

    cuts = fala_power_cuts(use, fala_folder("glove", TEXTS, labels_of(TEXTS)))
    for cut in cuts.at_operations({"sync", "rename", "delete"}, unsynced="lost"):
        device = App(cut.folder).device
        assert set(cut.said) <= {row.example for row in device.examples(label="rude")}
        device.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_full_or_broken_disk_is_reported(fala_folder, fala_failing_disk, error):
    folder = fala_folder("glove", TEXTS, labels_of(TEXTS))
    with fala_failing_disk(folder, at=1, error=error), pytest.raises(fala.DeviceError):
        App(folder).label("Ask my neighbour.", "rude")
    assert App(folder).label("Ask my neighbour.", "rude") == "Thank you!"
