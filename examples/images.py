"""Images, and no text: a user's favourite digits, kept when the app's image encoder is replaced.

Needs scikit-learn: python examples/images.py
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

import fala
import fala_export
from fala_export import write_external
from fala_export.fitting.bridge import fit_bridge
from fala_export.fitting.heads import fit_head

digits = load_digits()
images, numerals = digits.images.reshape(-1, 64) / 16, digits.target
keys = np.array([f"digit-{at}.png" for at in range(len(images))])
shuffled = np.random.default_rng(0).permutation(len(images))
public, mine, test = shuffled[:900], shuffled[900:1200], shuffled[1200:]


def pixels_of(names):
    """The images behind keys; an app would read files here."""
    return images[[int(name.removeprefix("digit-").removesuffix(".png")) for name in names]]


# The app's two encoders: 16 principal components, and later a network that reads digits.
components = PCA(16, random_state=0).fit(images[public])
network = MLPClassifier(48, max_iter=1000, tol=1e-3, random_state=0)
network.fit(images[public], numerals[public])


def old_encoder(names):
    """Embeddings of the first app, (n, 16)."""
    return components.transform(pixels_of(names))


def new_encoder(names):
    """Embeddings of the next app, (n, 48)."""
    return np.maximum(0, pixels_of(names) @ network.coefs_[0] + network.intercepts_[0])


def release(path, name, encoder):
    """The vendor's release: a head for the taste of most people, and probes of the encoder."""
    vectors, liked = encoder(keys[public]), (numerals[public] % 2 == 0).astype(int)
    probes = dict(zip(keys[public][:16], encoder(keys[public][:16]), strict=True))
    write_external(path, name, "1", fit_head(vectors, liked), probes)
    return vectors, fala.Bundle.open(path)


def main(folder):
    """One user's device, from the old encoder to the new one."""
    old, old_release = release(folder / "old.fala", "components", old_encoder)
    new, new_release = release(folder / "new.fala", "network", new_encoder)
    bridge = fit_bridge(old_release.backbone_digest, old, new)
    fala_export.add_bridge(folder / "new.fala", new_release, bridge, {})

    # Most people like even digits. This user likes them except 4, and also likes 7.
    likes = np.isin(numerals, [0, 2, 6, 7, 8]).astype(int)
    encoders = {"components 1": old_encoder, "network 1": new_encoder}

    def ranks(device):
        """The area under the ROC curve of unseen images, by this user's taste."""
        return roc_auc_score(likes[test], device.predict_proba(keys[test])[:, 1])

    with fala.Device.create(folder / "vendor", folder / "new.fala", encoder=encoders) as device:
        print(f"the vendor's new model: {ranks(device):.3f}")
    with fala.Device.create(folder / "device", folder / "old.fala", encoder=encoders) as device:
        vectors = old_encoder(keys[mine])  # the app has embedded these already
        items = [fala.Item(key, vector) for key, vector in zip(keys[mine], vectors, strict=True)]
        device.learn(items, likes[mine])
        print(f"the user's model on the old encoder: {ranks(device):.3f}")
        device.replace(folder / "new.fala", fala.Budget(forward_passes=0))
        print(f"on the new encoder, before any image is embedded anew: {ranks(device):.3f}")
        device.refine(fala.Budget(forward_passes=100))
        print(f"after 100 images: {ranks(device):.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
