"""Data sets by name, and the rows of fala-replace, as the laboratory divides them."""

import json

import pytest

from fala import DataError, Match
from fala_sim.data.conversion import folded
from fala_sim.data.division import Partition
from fala_sim.data.location import data_folder, find_location
from laboratory import write_data
from public_data import write_rows

pytestmark = pytest.mark.slow

USERS = ["busy", "next", "third", "fourth"]


def named(path, rows):
    """The name of a data set of these rows."""
    return f"rows:{write_rows(path, rows)}"


def label(good):
    return "good" if good else "bad"


def text_rows(users=USERS):
    """Each user has fewer rows than the one before; all are tested on the same documents."""
    rows = [{"split": "public", "text": f"public {n}", "label": label(n % 2)} for n in range(30)]
    for position, user in enumerate(users):
        counts = {"train": 60 - 10 * position, "test": 10}
        rows += [
            {"user": user, "split": split, "text": f"{split} {n}", "label": label(n % 2)}
            for split, count in counts.items()
            for n in range(count)
        ]
    return rows


def test_rows_are_divided_as_the_file_says(tmp_path):
    name = named(tmp_path / "users.jsonl", text_rows())
    division = Partition(name, None, users=2, seed=0).divide("test")
    assert [user.name for user in division.users] == ["busy", "third"]
    assert division.labels == ("bad", "good")
    assert division.task == "classification"
    busy = division.users[0]
    assert list(busy.train) == [f"train {n}" for n in range(60)]
    assert list(busy.test) == [f"test {n}" for n in range(10)]
    assert list(busy.test_labels) == ["bad", "good"] * 5
    assert len(division.public) == 30
    assert len(set(division.public_users)) == 30  # rows without a user
    assert "left out 2 users beyond those asked for" in division.left_out


@pytest.mark.parametrize(
    ("name", "task", "labels", "rating"),
    [
        ("scale-ratings", "rating", ("rating",), (0.0, 1.0)),
        ("scale-reviews", "classification", (0, 1, 2), None),
    ],
)
def test_each_seed_tests_another_writer(tmp_path, name, task, labels, rating):
    """Each division tests one writer; the three others are its public rows."""
    writers = ["Ann", "Bob", "Cid", "Dan"]
    for position, writer in enumerate(writers):
        (tmp_path / writer).mkdir()
        count = 40 - position
        for kind, lines in {
            "subj": [f"{writer} {n}" for n in range(count)],
            "label.3class": [n % 3 for n in range(count)],
            "rating": [n % 8 / 8 for n in range(count)],
        }.items():
            (tmp_path / writer / f"{kind}.{writer}").write_text("\n".join(map(str, lines)) + "\n")
    for seed, writer in enumerate(writers):
        tested = Partition(f"{name}:{tmp_path}", None, users=1, seed=seed).divide("test")
        assert [user.name for user in tested.users] == [writer]
        assert set(tested.public_users) == {*writers} - {writer}
        assert (tested.task, tested.labels, tested.rating) == (task, labels, rating)
        chosen = Partition(f"{name}:{tmp_path}", None, users=1, seed=seed).divide("validation")
        assert writer not in {user.name for user in chosen.users}
        assert len(chosen.users) == 2


def test_people_take_turns_in_the_two_halves(tmp_path):
    """Also where everybody is tested on the same documents."""
    name = named(tmp_path / "users.jsonl", text_rows())
    tested = Partition(name, None, users=2, seed=0).divide("test")
    held_out = {text for user in tested.users for text in user.test}
    division = Partition(name, None, users=2, seed=0).divide("validation")
    assert [user.name for user in division.users] == ["next", "fourth"]
    for user in division.users:
        assert user.train
        assert user.test
        assert not held_out & {*user.train, *user.test}
    assert not held_out & set(division.public)
    # Half of four people at most are tested.
    assert Partition(name, None, users=9, seed=0).divide("test").users == tested.users
    # Of two users one is tested and one chooses settings; one user is too few.
    name = named(tmp_path / "two.jsonl", text_rows(USERS[:2]))
    assert [u.name for u in Partition(name, None, users=9, seed=0).divide("test").users] == ["busy"]
    chosen = Partition(name, None, users=9, seed=0).divide("validation").users
    assert [user.name for user in chosen] == ["next"]
    alone = named(tmp_path / "one.jsonl", text_rows(USERS[:1]))
    with pytest.raises(DataError, match="too few"):
        Partition(alone, None, users=1, seed=0).divide("test")


def test_other_seeds_divide_rows_anew(tmp_path):
    name = named(tmp_path / "users.jsonl", text_rows())
    tests = {
        seed: [
            set(user.test)
            for user in Partition(name, None, users=2, seed=seed).divide("test").users
        ]
        for seed in (0, 1, 2)
    }
    assert tests[1] != tests[0]
    assert tests[1] != tests[2]
    for busy, second in tests.values():
        assert 10 <= len(busy) <= 30
        assert len(busy & second) == len(second)  # one document, one split


def test_leaking_and_unlabelled_rows_are_left_out(tmp_path):
    rows = text_rows()
    rows.append({"user": "busy", "split": "train", "text": "never judged"})
    rows.append({"user": "third", "split": "train", "text": "TEST  3", "label": "good"})
    rows.append({"split": "public", "text": "test 4", "label": "bad"})
    rows.append({"user": "busy", "split": "train", "text": "train 1", "label": "bad"})
    division = Partition(named(tmp_path / "u.jsonl", rows), None, users=2, seed=0).divide("test")
    assert set(division.left_out) == {
        "left out 1 train rows without a label",
        "left out 2 users beyond those asked for",
        "left out 1 rows of texts that the user had already labelled",
        "left out 1 train rows of texts on which a user is tested",
        "left out 1 public rows of texts on which a user is tested",
    }
    texts = {folded(text) for user in division.users for text in user.train}
    assert "test 3" not in texts
    assert division.users[0].train_labels[1] == "good"


def test_matches_are_divided_by_their_order(tmp_path):
    rows = [
        {"split": "public", "history": ["a"], "candidate": f"p{n}", "label": n % 2}
        for n in range(20)
    ]
    for user in USERS[:3]:
        rows += [
            {
                "user": user, "split": "train" if n < 15 else "test",
                "history": [f"{user} {earlier}" for earlier in range(max(0, n - 3), n)],
                "candidate": f"{user} {n}", "label": n % 2,
            }
            for n in range(20)
        ]  # fmt: skip
    name = named(tmp_path / "users.jsonl", rows)
    division = Partition(name, None, users=1, seed=0).divide("test")
    assert division.task == "matching"
    assert division.labels == (0, 1)
    assert division.users[0].test[0] == Match(("busy 12", "busy 13", "busy 14"), "busy 15")
    validation = Partition(name, None, users=1, seed=0).divide("validation").users
    assert [user.name for user in validation] == ["next"]
    assert [match.candidate for match in validation[0].test] == [f"next {n}" for n in range(14, 20)]
    assert len(validation[0].train) == 14


def test_no_label_of_a_test_user_is_there_when_settings_are_chosen(tmp_path):
    """Ten people choose, of the other half; the test users are not of the public either."""
    posts = {
        str(n): {
            "text": f"text {n}", "annotations": ",".join(str((n + who) % 2) for who in range(26)),
            "annotators": ",".join(f"a{who:02}" for who in range(26)),
        }
        for n in range(40)
    }  # fmt: skip
    (tmp_path / "X_train.json").write_text(json.dumps(posts))
    partition = Partition(f"lewidi:{tmp_path}", None, users=5, seed=0)
    tested, chosen = partition.divide("test"), partition.divide("validation")
    assert [user.name for user in tested.users] == ["a00", "a02", "a04", "a06", "a08"]
    assert [user.name for user in chosen.users] == [f"a{n:02}" for n in range(1, 20, 2)]
    assert set(tested.public_users) == {f"a{n:02}" for n in range(26)} - {
        user.name for user in tested.users
    }
    assert set(chosen.public_users) == set(tested.public_users) - {u.name for u in chosen.users}
    held_out = set(tested.users[0].test)
    assert not held_out & {*chosen.public, *chosen.users[0].train, *chosen.users[0].test}


def test_named_data_sets_are_found_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("FALA_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    with pytest.raises(DataError, match=r"hs-brexit: no such folder; `fala-sim data get hs-br"):
        find_location("hs-brexit", None)
    folder = write_data(data_folder(None) / "hs-brexit")
    assert find_location("hs-brexit", None).path == folder
    (tmp_path / "named").mkdir()
    monkeypatch.setenv("FALA_DATA", str(tmp_path / "named"))
    with pytest.raises(DataError, match="named/hs-brexit: no such folder"):
        find_location("hs-brexit", None)
    write_data(tmp_path / "given" / "hs-brexit")
    assert find_location("hs-brexit", tmp_path / "given").path.parts[-2] == "given"
    with pytest.raises(DataError, match="no data set 'other'; one of "):
        find_location("other", None)
    with pytest.raises(DataError, match=r"nothing\.jsonl: no such file"):
        find_location(f"rows:{tmp_path}/nothing.jsonl", None)


def test_a_digest_depends_only_on_files_that_are_read(tmp_path):
    folder = write_data(tmp_path / "one")
    before = find_location(f"lewidi:{folder}", None).digest()
    (folder / "notes.txt").write_text("not data")
    assert find_location(f"lewidi:{folder}", None).digest() == before
    assert find_location(f"lewidi:{write_data(tmp_path / 'two')}", None).digest() == before
    write_data(folder, seed=1)
    assert find_location(f"lewidi:{folder}", None).digest() != before
