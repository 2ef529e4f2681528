"""An app on the device: it learns, its backbone is replaced, and it still knows its user.

    python examples/app.py [FOLDER]

The releases come from a vendor; here they are made first, from the built-in backbones.
"""

import sys
import tempfile
from importlib import resources
from pathlib import Path

import fala

BUILT_IN = Path(str(resources.files("fala") / "builtin"))
FRIENDLY = ("What a lovely film", "Thank you for this", "I enjoyed the book", "A kind answer")
RUDE = ("What a stupid film", "Nobody wants you here", "The book is garbage", "A vile answer")
THINGS = ("from the library", "about the match", "on Monday", "by my neighbour", "in the news")


def sentences(starts):
    """Every start with every end."""
    return [f"{start} {thing}." for start in starts for thing in THINGS]


def make_release(name, folder):
    """The vendor's part: a global head on public rows."""
    bundle = fala.Bundle.open(BUILT_IN / f"{name}.fala")
    texts = sentences(FRIENDLY) + sentences(RUDE)
    labels = ["fine"] * len(sentences(FRIENDLY)) + ["rude"] * len(sentences(RUDE))
    head = fala.fit_head(bundle.backbone(), texts, labels)
    fala.write_release(folder / f"{name}-release.fala", bundle, head, {"head": "examples/app.py"})
    return folder / f"{name}-release.fala"


def main(folder):
    """The app's part."""
    old, new = make_release("glove", folder), make_release("bert", folder)
    # This user minds no rough word about books, and every word about the neighbour.
    texts = sentences(FRIENDLY) + sentences(RUDE)
    labels = ["rude" if "vile" in t or "Nobody" in t or "neighbour" in t else "fine" for t in texts]
    questions = ["The book is garbage, they say.", "Nobody wants you in our street."]
    with fala.Device.create(folder / "device", old) as device:
        learned = device.learn(texts, labels)
        print(f"{device.name}: learned from {learned.labelled} labelled texts")
        before = device.predict(questions)
        report = device.replace(new, fala.Budget(forward_passes=20))
        print(f"{report.old} -> {report.new}: {report.decision} model, {report.reason}")
        print(f"{report.forward_passes} forward passes, {report.backward_passes} backward passes")
        rude = device.labels.index("rude")
        for question, was, now in zip(questions, before, device.predict(questions), strict=True):
            print(f"rude? {was[rude]:.2f} before, {now[rude]:.2f} after: {question}")
        device.rollback()
        print(f"rolled back to {device.name}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(*sys.argv[1:2] or [temporary]))
