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
ENDS = (".", ", they say.", ", once again.", ", as we all know.")


def sentences(starts, ends=ENDS[:1]):
    """Every start with every thing and every end."""
    return [f"{start} {thing}{end}" for start in starts for thing in THINGS for end in ends]


def make_release(name, folder):
    """The vendor's part: a global head on public rows."""
    bundle = fala.Bundle.open(BUILT_IN / f"{name}.fala")
    texts = sentences(FRIENDLY) + sentences(RUDE)
    labels = ["fine"] * len(sentences(FRIENDLY)) + ["rude"] * len(sentences(RUDE))
    head = fala.fit_head(bundle.backbone(), texts, labels)
    fala.write_release(folder / f"{name}-release.fala", bundle, head, {"head": "examples/app.py"})
    return folder / f"{name}-release.fala"


def build_bridge(old, new):
    """The vendor's part: a bridge on public text, put into the new release."""
    bundles = fala.Bundle.open(old), fala.Bundle.open(new)
    texts = sentences(FRIENDLY + RUDE, ENDS)
    embeddings = (bundle.backbone().encode(texts) for bundle in bundles)
    bridge = fala.fit_bridge(bundles[0].backbone_digest, *embeddings)
    fala.add_bridge(new, bundles[1], bridge, {"text": "examples/app.py"})


def main(folder):
    """The app's part."""
    old, new = make_release("glove", folder), make_release("bert", folder)
    build_bridge(old, new)
    # This user minds no rough word about books, and every word about the neighbour.
    texts = sentences(FRIENDLY) + sentences(RUDE)
    labels = ["rude" if "vile" in t or "Nobody" in t or "neighbour" in t else "fine" for t in texts]
    questions = ["The book in the shop is garbage.", "Nobody wants you in our street."]
    with fala.Device.create(folder / "device", old) as device:
        learned = device.learn(texts, labels)
        print(f"{device.name}: learned from {learned.labelled} labelled texts")
        before = device.predict(questions)
        report = device.replace(new, fala.Budget(forward_passes=0))
        print(f"{report.old} -> {report.new}: {report.decision} model, {report.reason}")
        instant = device.predict(questions)
        refined = device.refine(fala.Budget(forward_passes=20))  # later, in idle time
        print(f"{report.forward_passes} forward passes, then {refined.forward_passes}")
        rude = device.labels.index("rude")
        answers = zip(
            questions, before, instant, device.predict(questions), device.decide(questions),
            strict=True,
        )  # fmt: skip
        for question, was, first, now, label in answers:
            print(f"rude? {was[rude]:.2f}, {first[rude]:.2f}, {now[rude]:.2f}: {label}: {question}")
        device.rollback()
        print(f"rolled back to {device.name}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(*sys.argv[1:2] or [temporary]))
