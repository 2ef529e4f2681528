"""From a scikit-learn filter to FaLA: the labels stay when the features are replaced.

Needs scikit-learn: python examples/filter.py
"""

import tempfile

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import fala
import fala_sim

# One reader's history of 400 posts, of which 80 are labelled: 1 unwelcome, 0 fine.
(reader,) = fala_sim.sample_rows(users=1).users.values()
history, truth = [row.example for row in reader.train], [row.label for row in reader.train]
posts, labels = history[:80], truth[:80]
unseen, wanted = [row.example for row in reader.test], np.array([row.label for row in reader.test])


def errors(predicted):
    """Return the error rate on unseen posts, in percent."""
    return f"{100 * np.mean(np.asarray(predicted, dtype=int) != wanted):.1f} %"


# What the app has today: words, a projection, and a classifier.
words = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(100, random_state=0))
words.fit(history)
classifier = LogisticRegression().fit(words.transform(posts), labels)
print("scikit-learn on words:", errors(classifier.predict(words.transform(unseen))))

# The app's next version has a sentence encoder, as model.encode; here it is a small built-in one.
encode = fala.Bundle.open(fala_sim.sample_release("bert")).backbone().encode


def main(folder):
    """The same labels in FaLA, on the features of today and then on the next ones."""
    with fala.Device.create(folder, labels=[0, 1], encoder=words.transform) as device:
        device.learn(posts, labels)
        device.remember(history[80:])  # posts without a label, for the next encoder
        print("FaLA on words:", errors(device.predict(unseen)))
    with fala.Device.open(folder) as device:  # the old features are not needed any more
        device.replace(encoder={"sentences 1": encode}, budget=fala.Budget(200))
        print("FaLA on sentences, after 200 forward passes:", errors(device.predict(unseen)))
        device.refine(fala.Budget(200))  # in idle time
        print("FaLA on sentences, after all:", errors(device.predict(unseen)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
