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

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.device.close()

    def hide(self, message):
        """Whether a message is hidden."""
        return self.device.predict([message]) == ["rude"]

    def label(self, message, label):
        """Learn the user's label, and thank the user."""
        self.device.learn([message], [label])
        return "Thank you!"


def test_the_app_learns(fala_folder):
    with App(fala_folder("glove", TEXTS, labels_of(TEXTS))) as app:
        assert app.label("Ask my neighbour.", "rude") == "Thank you!"
        assert app.hide("What a lovely film about the match, once again.")


def test_acknowledged_labels_are_kept(fala_folder, fala_power_cuts):
    def use(folder, say):
        with App(folder) as app:
            for message in ("Ask my neighbour.", "See you at the match."):
                app.label(message, "rude")
                say(message)

    cuts = fala_power_cuts(use, fala_folder("glove", TEXTS, labels_of(TEXTS)))
    for cut in cuts.at_operations({"sync", "rename", "delete"}, unsynced="lost"):
        with App(cut.folder) as app:
            assert set(cut.said) <= {row.example for row in app.device.examples(label="rude")}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_full_or_broken_disk_is_reported(fala_folder, fala_failing_disk, error):
    folder = fala_folder("glove", TEXTS, labels_of(TEXTS))
    failing = fala_failing_disk(folder, at=1, error=error)
    with failing, pytest.raises(fala.DeviceError), App(folder) as app:
        app.label("Ask my neighbour.", "rude")
    with App(folder) as app:
        assert app.label("Ask my neighbour.", "rude") == "Thank you!"
