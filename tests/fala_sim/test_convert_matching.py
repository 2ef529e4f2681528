import pytest

from conversions import check, split
from fala.base.errors import DataError
from fala_sim.data.left_out import LeftOut
from fala_sim.data.matching import Moment, convert_moments


def moments(name, count, *, passed=3):
    """Moments that share no candidate with other users."""
    history, result = [], []
    for number in range(count):
        shown = [f"{name} passed {number}.{position}" for position in range(passed)]
        result.append(Moment(tuple(history), [f"{name} opened {number}"], shown))
        history.append(f"{name} opened {number}")
    return result


def by(name, moments):
    return [(name, moment) for moment in moments]


def divide(users, others, *, negatives=1, public=1000):
    left_out = LeftOut()
    conversion = convert_moments(
        users, others, negatives=negatives, public=public, left_out=left_out
    )
    return check(conversion), left_out.counts()


def offers(rows, name):
    return [(row.judged, row.label) for row in split(rows, name)]


def test_test_rows_are_the_latest_three_tenths():
    by_user, left_out = divide({"u": moments("u", 10)}, by("v", moments("v", 5)), negatives=2)
    rows = by_user["u"]
    assert [row.judged for row in split(rows, "train") if row.label] == [
        f"u opened {n}" for n in range(7)
    ]
    assert [row.judged for row in split(rows, "test") if row.label] == [
        f"u opened {n}" for n in range(7, 10)
    ]
    assert len(split(rows, "train")) == 21
    assert len(by_user[None]) == 15
    assert left_out == {}
    late = next(row for row in rows if row.judged == "u opened 8")
    assert late.history == tuple(f"u opened {n}" for n in range(8))


def test_training_rows_exclude_test_candidates():
    v = moments("v", 10)
    v[0] = Moment((), ["U  opened 9"], ["v early"])  # u is tested on it
    v[1] = Moment((), ["v opened 1"], ["u passed 9.0", "u passed 9.1", "v other"])
    others = [
        ("p", Moment(("u opened 9",), ["w"], ["u opened 9", "w passed"])),  # a history may name it
        ("q", Moment((), ["v opened 9"], ["never"])),
    ]
    by_user, left_out = divide({"u": moments("u", 10), "v": v}, others)
    # The like that is gone takes its negative along; a negative that is gone is drawn again.
    assert offers(by_user["v"], "train")[:2] == [("v opened 1", 1), ("u passed 9.1", 0)]
    assert "v early" not in {row.judged for row in by_user["v"]}
    assert offers(by_user[None], "public") == [("w", 1), ("w passed", 0)]
    assert by_user[None][0].history == ("u opened 9",)
    assert {row.user for row in by_user[None]} == {"p"}
    assert left_out == {
        "opened public candidates that a user is tested on": 1,
        "opened train candidates that a user is tested on": 1,
    }


def test_test_rows_exclude_candidates_of_train_histories():
    u = moments("u", 10)
    u[8] = Moment((), ["u opened 2"], ["u opened 1", "u late"])  # both offered again
    by_user, left_out = divide({"u": u}, by("v", moments("v", 5)))
    assert ("u opened 2", 1) in offers(by_user["u"], "train")
    assert [candidate for candidate, _ in offers(by_user["u"], "test")] == [
        "u opened 7", "u passed 7.0", "u opened 9", "u passed 9.0",
    ]  # fmt: skip
    assert left_out == {"test candidates opened before": 1}


def test_a_candidate_offered_twice_is_one_row():
    u = [
        Moment((), ["a"], ["again"]),
        Moment((), ["b"], ["Again ", "c"]),
        Moment((), ["again"], ["a", "d"]),
        *moments("u", 3),
    ]
    by_user, _ = divide({"u": u}, by("v", moments("v", 5)))
    train = offers(by_user["u"], "train")
    assert train[:5] == [("a", 1), ("again", 1), ("b", 1), ("c", 0), ("d", 0)]


def test_a_moment_without_opened_candidates_has_as_many_negatives_as_one_opened():
    u = [Moment((), [], [f"{n}.{position}" for position in range(9)]) for n in range(4)]
    by_user, _ = divide({"u": u}, by("v", moments("v", 5)), negatives=4)
    assert len(split(by_user["u"], "train")) == 12
    assert len(split(by_user["u"], "test")) == 4


def test_public_rows_stop_at_the_limit():
    def others():
        yield from by("v", moments("v", 4))
        raise AssertionError("read on")

    by_user, _ = divide({"u": moments("u", 4)}, others(), public=7)
    assert len(by_user[None]) == 7


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ({"u": moments("u", 1)}, r"'u' has too few .* \(0 and 2 are left\); take fewer users"),
        ({"u": moments("u", 4), "v": [moments("u", 4)[3], *moments("v", 1)]}, "'v' has too few"),
        (
            {"u": [Moment((), [], ["x"]), Moment((), [], ["y"])]},
            "1 user is without two labels",
        ),
    ],
)
def test_too_few_moments_are_an_error(users, words):
    others = [Moment((), [], ["p", "q"])] if "label" in words else moments("p", 3)
    others = by("v", others)
    with pytest.raises(DataError, match=words):
        divide(users, others)
