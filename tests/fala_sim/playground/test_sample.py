import os
import subprocess
import sys

import numpy as np
import pytest

from fala.base.errors import DataError
from fala_sim.playground.sample import sample_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sample():
    return sample_rows()


def texts(rows):
    return [row.example for row in rows]


def test_the_sample_has_shape_and_metadata(sample):
    assert sample.task == "classification"
    assert sample.labels == (0, 1)
    assert "synthetic" in sample.source
    assert len(sample.public) == 2000
    assert {row.user for row in sample.public} == {None}
    assert list(sample.users) == [f"u{number}" for number in range(1, 9)]
    for name, user in sample.users.items():
        assert (len(user.train), len(user.test)) == (400, 170)
        assert {row.user for row in user.train + user.test} == {name}
    for text in texts(sample.public):  # like sentences of people
        assert text[0].isupper() and text[-1] in ".?!"
        assert "  " not in text and not set(text) & set("{}_")


def test_every_text_is_unique_and_both_labels_are_common_for_every_user():
    crowd = sample_rows(users=50, seed=1)
    public = texts(crowd.public)
    train = [text for user in crowd.users.values() for text in texts(user.train)]
    test = [text for user in crowd.users.values() for text in texts(user.test)]
    assert not set(test) & set(train + public)
    assert len(set(public + train + test)) == 2000 + 50 * 570
    for user in crowd.users.values():
        for rows in (crowd.public, user.train, user.test):
            assert 0.1 <= np.mean([row.label for row in rows]) <= 0.6


def test_the_rows_of_a_seed_are_deterministic():
    code = (
        "import hashlib; from fala_sim.playground.sample import sample_rows;"
        "rows = sample_rows(users=2, seed=3); users = rows.users.values();"
        "rows = [*rows.public, *(row for user in users for row in (*user.train, *user.test))];"
        "pairs = repr([(row.example, row.label) for row in rows]);"
        "print(hashlib.sha256(pairs.encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("9e25d662763efc17")


def test_users_and_seed_select_the_sample(sample):
    small = sample_rows(users=2)
    assert small.public == sample.public
    assert small.users == {name: sample.users[name] for name in ("u1", "u2")}
    another_seed = sample_rows(users=1, seed=1)
    assert len(set(texts(another_seed.public)) & set(texts(sample.public))) < 20
    for users in (0, 51):
        with pytest.raises(DataError, match="1 to 50"):
            sample_rows(users=users)
