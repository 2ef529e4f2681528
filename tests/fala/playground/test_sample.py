import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import hstack

from fala.errors import DataError
from fala.playground.sample import sample_rows


@pytest.fixture(scope="module")
def sample():
    return sample_rows()


def texts(rows):
    return [row.example for row in rows]


def labels(rows):
    return np.array([row.label for row in rows])


def test_shape_and_metadata(sample):
    assert sample.task == "classification"
    assert sample.labels == ("0", "1")
    assert "synthetic" in sample.source
    assert len(sample.public) == 2000
    assert {row.user for row in sample.public} == {None}
    assert list(sample.users) == [f"u{number}" for number in range(1, 9)]
    for name, user in sample.users.items():
        assert (len(user.train), len(user.test)) == (400, 170)
        assert {row.user for row in user.train + user.test} == {name}


def test_no_text_is_there_twice_so_no_test_text_is_in_training_data():
    sample = sample_rows(users=50)
    public = texts(sample.public)
    train = [text for user in sample.users.values() for text in texts(user.train)]
    test = [text for user in sample.users.values() for text in texts(user.test)]
    assert not set(test) & set(train + public)
    assert len(set(public + train + test)) == 2000 + 50 * 570


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_labels_are_common_for_everybody(seed):
    sample = sample_rows(users=50, seed=seed)
    users = sample.users.values()
    for rows in (sample.public, *(user.train for user in users), *(user.test for user in users)):
        assert 0.1 <= labels(rows).mean() <= 0.6


def test_same_rows_in_every_process_and_whatever_the_hash_seed():
    code = (
        "import hashlib; from fala.playground.sample import sample_rows;"
        "rows = sample_rows(users=2, seed=3);"
        "print(hashlib.sha256(repr(rows).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "random")
    }
    assert len(digests) == 1


def test_the_number_of_users_and_the_seed(sample):
    small = sample_rows(users=2)
    assert small.public == sample.public
    assert small.users == {name: sample.users[name] for name in ("u1", "u2")}
    other = sample_rows(users=1, seed=1)
    assert len(set(texts(other.public)) & set(texts(sample.public))) < 20
    for users in (0, 51):
        with pytest.raises(DataError, match="1 to 50"):
            sample_rows(users=users)


def test_texts_read_as_written_by_people(sample):
    for text in texts(sample.public):
        assert text[0].isupper()
        assert text[-1] in ".?!"
        assert "  " not in text
        assert not set(text) & set("{}_")


def test_personal_labels_are_learnable_beyond_the_global_ones(sample):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear = pytest.importorskip("sklearn.linear_model")
    metrics = pytest.importorskip("sklearn.metrics")

    words = text.TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    public = words.fit_transform(texts(sample.public))
    vendor = linear.LogisticRegression(C=3, max_iter=500).fit(public, labels(sample.public))

    def features(rows):
        vectors = words.transform(texts(rows))
        return hstack([vectors, vendor.decision_function(vectors)[:, None]]).tocsr()

    shared, gain = {}, {}
    for name, user in sample.users.items():
        train, test, truth = features(user.train), features(user.test), labels(user.test)
        device = linear.LogisticRegression(C=3, max_iter=500).fit(train, labels(user.train))
        shared[name] = metrics.roc_auc_score(truth, test[:, -1].toarray().ravel())
        gain[name] = metrics.roc_auc_score(truth, device.decision_function(test)) - shared[name]

    assert 0.70 < np.mean(list(shared.values())) < 0.80
    assert np.mean(list(gain.values())) > 0.05
    # The third and the eighth are the average readers: little to gain, and nothing to lose.
    assert all(-0.01 < gain[name] < 0.04 for name in ("u3", "u8"))
    assert all(gain[name] > 0.02 for name in gain if name not in ("u3", "u8"))
