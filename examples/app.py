"""An app on the device, and its vendor: python examples/app.py [FOLDER]."""

import sys
import tempfile
from pathlib import Path

import fala
import fala_export
import fala_sim

FRIENDLY = ("What a lovely film", "Thank you for this", "I enjoyed the book", "A kind answer")
RUDE = ("What a stupid film", "Nobody wants you here", "The book is garbage", "A vile answer")
SUBJECTS = ("from the library", "about the match", "on Monday", "by my neighbour", "in the news")
ENDS = (".", ", they say.", ", once again.", ", as we all know.")


def sentences(starts):
    """Every start with every subject and every end."""
    return [f"{start} {subject}{end}" for start in starts for subject in SUBJECTS for end in ENDS]


def make_release(name, folder):
    """The vendor's part: a global head on public rows."""
    path, bundle = folder / f"{name}-release.fala", fala.Bundle.open(fala_sim.sample_release(name))
    labels = ["fine"] * len(sentences(FRIENDLY)) + ["rude"] * len(sentences(RUDE))
    head = fala_export.fit_head(bundle.backbone(), sentences(FRIENDLY + RUDE), labels)
    fala_export.write_release(path, bundle, head, {"head": "examples/app.py"})
    return path


def build_bridge(old, new):
    """The vendor's part: a bridge on public text, put into the new release."""
    bundles = fala.Bundle.open(old), fala.Bundle.open(new)
    embeddings = (bundle.backbone().encode(sentences(FRIENDLY + RUDE)) for bundle in bundles)
    bridge = fala_export.fit_bridge(bundles[0].backbone_digest, *embeddings)
    fala_export.add_bridge(new, bundles[1], bridge, {})


def main(folder):
    """The app's part."""
    old, new = (make_release(name, folder) for name in ("glove", "bert"))
    build_bridge(old, new)
    texts, bad = sentences(FRIENDLY + RUDE), ("vile", "Nobody", "neighbour")  # to this user
    labels = ["rude" if any(word in text for word in bad) else "fine" for text in texts]
    with fala.Device.create(folder / "device", old) as device:
        print(device.learn(texts, labels))
        report = device.replace(new, fala.Budget(forward_passes=0))
        print(f"{report.old} -> {report.new}: {report.decision} model, {report.reason}")
        later = device.refine(fala.Budget(forward_passes=20)).forward_passes  # in idle time
        print(f"{report.forward_passes} forward passes, then {later}")
        for question in ("The book in the shop is garbage.", "Nobody wants you in our street."):
            print(f"{device.predict([question])[0]}: {question}")
        device.rollback()
        print(f"rolled back to {device.status().release}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(*sys.argv[1:2] or [temporary]))
