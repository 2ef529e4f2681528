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

digits = load_digits()
images, numerals = digits.images.reshape(-1, 64) / 16, digits.target
keys = np.array([f"digit-{at}.png" for at in range(len(images))])
shuffled = np.random.default_rng(0).permutation(len(images))
others, mine, test = shuffled[:900], shuffled[900:1200], shuffled[1200:]


def pixels_of(names):
    """The images behind keys; an app would read files here."""
    return images[[int(name.removeprefix("digit-").removesuffix(".png")) for name in names]]


# The app's two encoders: 16 principal components, and later a network that reads digits.
components = PCA(16, random_state=0).fit(images[others])
network = MLPClassifier(48, max_iter=1000, tol=1e-3, random_state=0)
network.fit(images[others], numerals[others])


def old_encoder(names):
    """Embeddings of the first app, (n, 16)."""
    return components.transform(pixels_of(names))


def new_encoder(names):
    """Embeddings of the next app, (n, 48)."""
    return np.maximum(0, pixels_of(names) @ network.coefs_[0] + network.intercepts_[0])


def main(folder):
    """One user's device, from the old encoder to the new one."""
    likes = np.isin(numerals, [0, 2, 6, 7, 8]).astype(int)  # of this user

    def ranks(device):
        """The area under the ROC curve of unseen images, by this user's taste."""
        return roc_auc_score(likes[test], device.predict_proba(keys[test])[:, 1])

    vectors = old_encoder(keys[mine])  # the app has embedded these already
    items = [fala.Item(key, vector) for key, vector in zip(keys[mine], vectors, strict=True)]
    with fala.Device.create(
        folder, labels=[0, 1], encoder={"components": old_encoder}, dimension=16
    ) as device:
        device.learn(items[:100], likes[mine[:100]])
        device.remember(items[100:])
        print(f"on the old encoder: {ranks(device):.3f}")
    with fala.Device.open(folder) as device:
        device.replace(encoder={"network": new_encoder}, dimension=48, budget=fala.Budget(100))
        print(f"on the new encoder, after 100 images: {ranks(device):.3f}")
        device.refine(fala.Budget(200))
        print(f"after all of them: {ranks(device):.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
