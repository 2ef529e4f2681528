"""Users who open some of their offers: matching rows, divided by time.

A document is a text: a film, an article. All users are offered the same documents, and test
documents are in many histories. So that labels do not leak:

- A candidate of a test row is a candidate in nobody's train or public rows: no model can have
  learnt from anybody whether *this* film is liked.
- A user's test candidates are in no history of this user's train rows, which would show them as
  liked. This follows from time, except for offers after the text was opened; test rows of such
  offers are left out.
- Other people's histories, and the user's later test rows, may contain them: a history is what the
  device has at that time, and no label is learnt from it.

The cost is that with more users each user loses more train rows, because other users are tested on
the same documents. Candidates that were not opened are drawn afterwards from what remains, so that
the share of opened ones is similar in all splits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fala import DataError, Match
from fala_sim.data.conversion import TEST_SHARE, Conversion, ConvertedRow, check_public, folded
from fala_sim.data.left_out import LeftOut

PUBLIC = 20_000  # number of rows; each has a history of its own


@dataclass(frozen=True, slots=True)
class Moment:
    """The offers to a person at one time.

    Attributes:
        history: The texts opened before, oldest first.
        opened: Candidates that were opened (liked).
        passed: Candidates that were not opened, in random order; iterated once, as far as needed.
    """

    history: tuple[str, ...]
    opened: Sequence[str]
    passed: Iterable[str]


def convert_moments(
    users: Mapping[str, Sequence[Moment]],
    others: Iterable[tuple[str, Moment]],
    *,
    negatives: int,
    public: int,
    left_out: LeftOut,
) -> Conversion:
    """Divide each user's moments by time, 70:30, and make public rows from other people's moments.

    Args:
        users: Each user's moments, oldest first.
        others: Names and moments of other people in random order; read until there are enough.
        negatives: Number of passed candidates for each opened one; a moment without an opened
            candidate has as many as a moment with one.
        public: Maximum number of public rows.
        left_out: Counts what is left out.

    Raises:
        DataError: A user has too few moments to divide, or the public rows lack a label.
    """
    cuts = {
        user: min(max(round(len(moments) * (1 - TEST_SHARE)), 1), len(moments) - 1)
        for user, moments in users.items()
    }
    held_out: set[str] = set()
    test: dict[str, list[ConvertedRow]] = {}
    for user, moments in users.items():
        histories = {moment.history for moment in moments[: cuts[user]]}
        in_history = {folded(text) for history in histories for text in history}
        later = moments[cuts[user] :]
        test[user] = _rows(user, "test", later, negatives, in_history)
        held_out.update(folded(row.judged) for row in test[user])
        left_out.add("test candidates opened before", count=_count_opened(later, in_history))

    rows: list[ConvertedRow] = []
    tested = 0
    for user, moment in others:
        rows += _rows(user, "public", [moment], negatives, held_out)
        tested += _count_opened([moment], held_out)
        if len(rows) >= public:
            break
    del rows[public:]
    left_out.add("opened public candidates that a user is tested on", count=tested)
    for user, moments in users.items():
        earlier = moments[: cuts[user]]
        train = _rows(user, "train", earlier, negatives, held_out)
        left_out.add(
            "opened train candidates that a user is tested on",
            count=_count_opened(earlier, held_out),
        )
        if not train or not test[user]:
            raise DataError(
                f"user {user!r} has too few judgements to divide into train and test "
                f"({len(train)} and {len(test[user])} are left); take fewer users"
            )
        rows += train + test[user]
    check_public(rows, len(users))
    return Conversion(rows, left_out)


def _rows(
    user: str,
    split: str,
    moments: Iterable[Moment],
    negatives: int,
    without: Collection[str],
) -> list[ConvertedRow]:
    """Return the rows of one user's moments, without the candidates in ``without`` (folded).

    A text that was offered several times is one row, which counts as opened if it ever was.
    """
    rows: dict[str, ConvertedRow] = {}
    for moment in moments:
        opened = [text for text in moment.opened if folded(text) not in without]
        for text in opened:
            rows[folded(text)] = ConvertedRow(user, split, Match(moment.history, text), 1)
        if moment.opened and not opened:
            continue
        missing = negatives * max(len(opened), 1)
        for text in moment.passed:
            if folded(text) not in without and folded(text) not in rows:
                rows[folded(text)] = ConvertedRow(user, split, Match(moment.history, text), 0)
                missing -= 1
            if not missing:
                break
    return list(rows.values())


def _count_opened(moments: Iterable[Moment], among: Collection[str]) -> int:
    return sum(folded(text) in among for moment in moments for text in moment.opened)
