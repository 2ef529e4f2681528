from collections import Counter
from functools import partial

from checkout import real_data
from conversions import check, read_by, split
from fala_sim.data.formats.movielens import (
    FilmRating,
    _Offers,
    busiest_raters,
    convert_likes,
    read_movielens,
)
from fala_sim.data.left_out import LeftOut


def write(folder, movies, ratings):
    (folder / "movies.csv").write_text(
        "movieId,title,genres\n" + "".join(f"{line}\r\n" for line in movies), encoding="utf-8"
    )
    (folder / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\n" + "".join(f"{line}\n" for line in ratings)
    )
    # A tag is an opinion: nothing of it may appear.
    (folder / "tags.csv").write_text("userId,movieId,tag,timestamp\n1,1,adorable,1\n")
    return folder


read = partial(read_by, read_movielens)


def divide(ratings, users=1, seed=0, **options):
    left_out, chosen = LeftOut(), busiest_raters(ratings)[:users]
    conversion = convert_likes(ratings, users=chosen, seed=seed, left_out=left_out, **options)
    return conversion, left_out.counts()


def make_ratings():
    """Ratings of a user who likes 20 films of 30, and of another user at the same time."""
    return {
        "busy": [FilmRating(100 * n, f"film {n}", n % 3 > 0) for n in range(30)],
        "other": [FilmRating(50 * n - 400, f"other film {n}", True) for n in range(19)],
    }


def test_a_film_is_its_title_and_genres(tmp_path):
    movies = [
        '1,"Dark, The (1999) é",Horror|Sci-Fi',
        '2,"""Quoted"" (2000)",(no genres listed)',
        "3,Late,Drama",
    ]
    ratings = ["7,3,4.0,300", "7,1,3.5,100", "7,2,5.0,200", "8,1,4,100"]
    parsed, left_out = read(write(tmp_path, movies, ratings))
    assert parsed == {
        "7": [
            FilmRating(100, "Dark, The (1999) é [Horror, Sci-Fi]", False),
            FilmRating(200, '"Quoted" (2000)', True),
            FilmRating(300, "Late [Drama]", True),
        ],
        "8": [FilmRating(100, "Dark, The (1999) é [Horror, Sci-Fi]", True)],
    }
    assert left_out.counts() == {}


def test_damage_is_counted(tmp_path):
    movies = ["1,One,Drama", "2,", "3, ,Drama", "4,ONE,Drama"]
    ratings = [
        "7,1,4.0,100", "7,2,4.0,100", "7,4,1.0,90", "7,1,9.0,100", "7,1,good,100", "7,1,4.0",
        ",1,4.0,100", "7,1,nan,100",
    ]  # fmt: skip
    parsed, left_out = read(write(tmp_path, movies, ratings))
    # The same film twice: the earlier rating counts.
    assert parsed == {"7": [FilmRating(90, "ONE [Drama]", False)]}
    assert left_out.counts() == {
        "damaged rows of movies.csv": 2,
        "damaged rows of ratings.csv": 5,
        "ratings of unknown films": 1,
        "ratings of a film that their user had rated": 1,
    }
    assert "first: movieId '2' of user '7'" in "\n".join(left_out.lines())


def test_the_history_has_the_films_liked_before():
    ratings = make_ratings()
    for history in (3, 100):
        rows = check(divide(ratings, history=history)[0])["busy"]
        liked = [rating.film for rating in ratings["busy"] if rating.liked]
        opened = [row for row in rows if row.label]
        assert [row.judged for row in opened] == liked
        assert [row.judged for row in split(opened, "test")] == liked[14:]
        for position, row in enumerate(opened):
            assert row.history == tuple(liked[max(position - history, 0) : position])


def test_a_negative_is_an_offered_film_that_the_user_never_rated():
    ratings = make_ratings()
    rows = check(divide(ratings)[0])
    time = {rating.film: rating.time for rating in ratings["busy"]}
    offered = {rating.film: rating.time for rating in reversed(ratings["other"])}
    passed = [row for row in rows["busy"] if not row.label]
    assert passed
    for row in passed:
        assert row.judged not in time
        assert offered[row.judged] < time[rows["busy"][rows["busy"].index(row) - 1].judged]


def test_films_are_offered_as_often_as_they_are_rated():
    ratings = {
        "u": [FilmRating(10 + n, f"liked {n}", True) for n in range(1000)],
        "v": [FilmRating(0, "obscure", False), FilmRating(1, "v", True), FilmRating(2, "w", True)],
        **{f"fan {n}": [FilmRating(0, "famous", False)] for n in range(9)},
    }
    offers = _Offers(ratings, seed=0)
    drawn = Counter(film for _ in range(300) for film in offers.draw("u", 9))
    assert 8.2 < drawn["famous"] / drawn["obscure"] < 9.8
    assert list(offers.draw("u", 0)) == []


def test_users_are_the_people_with_most_liked_films():
    ratings = make_ratings()
    ratings["critic"] = [FilmRating(n, f"other film {n}", n < 3) for n in range(99)]
    conversion, left_out = divide(ratings)
    assert list(check(conversion)) == [None, "busy"]
    assert left_out["ratings below 4"] == 10 + 96
    assert divide(ratings)[0].rows == conversion.rows
    assert divide(ratings, seed=1)[0].rows != conversion.rows


def test_real_likes():
    ratings, left_out = read(real_data("movielens-small"))
    assert left_out.counts() == {}
    assert sum(map(len, ratings.values())) == 100_004
    conversion = convert_likes(
        ratings, users=busiest_raters(ratings)[:5], seed=0, public=3000, left_out=left_out
    )
    by_user = check(conversion)
    public = by_user.pop(None)
    assert len(public) == 3000
    for rows in by_user.values():
        assert 0.49 < sum(row.label for row in rows) / len(rows) < 0.51
