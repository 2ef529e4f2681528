"""A vendor: from a backbone and public labelled rows to a release that devices open.

    python examples/vendor.py [FOLDER]

The backbone may come from any bundle that fala-export wrote. Here it comes from a sample release,
whose head is not used.
"""

import sys
import tempfile
from pathlib import Path

import fala
import fala_export
import fala_sim

BACKBONE = fala_sim.sample_release("bert")
SUBJECTS = ("The train", "The soup", "This song", "The new phone", "My chair", "The garden")
VERDICTS = {
    "praise": ("is wonderful", "made me happy", "is better than I hoped"),
    "complaint": ("is dreadful", "made me angry", "is worse than I feared"),
}


def public_rows():
    """Texts with their public labels."""
    return [
        (f"{subject} {verdict}.", label)
        for label, verdicts in VERDICTS.items()
        for verdict in verdicts
        for subject in SUBJECTS
    ]


def main(folder):
    """Make the release, and open it on a device."""
    texts, labels = zip(*public_rows(), strict=True)
    bundle = fala.Bundle.open(BACKBONE)
    head = fala_export.fit_head(bundle.backbone(), texts, labels)
    path = folder / "release.fala"
    fala_export.write_release(path, bundle, head, {"head": f"fitted on {len(texts)} public rows"})

    release = fala.Bundle.open(path)  # verifies every byte
    manifest = release.manifest
    print(f"{path.name}: {manifest.title}, {manifest.kind}, {manifest.dimension} dimensions")
    labels = ", ".join(map(str, manifest.labels))
    print(f"{manifest.task} with labels {labels}; {manifest.details['head']}")
    with fala.Device.create(folder / "device", path) as device:
        for text in ("The soup is wonderful.", "The cellar is dreadful."):
            label = device.labels[device.predict_proba([text])[0].argmax()]
            print(f"a new device says {label}: {text}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(*sys.argv[1:2] or [temporary]))
