import json
from datetime import datetime

import pytest

from checkout import real_data
from conversions import check, run, split
from fala.base.errors import DataError
from fala_sim.data.formats.mind import (
    Impression,
    busiest_readers,
    convert_impressions,
    read_impressions,
    read_news,
)
from fala_sim.data.left_out import LeftOut


def article(number, title):
    return (
        f'N{number}\tnews\tnewsworld\t{title}\tAn "abstract\thttps://assets.msn.com/{number}.html'
        f'\t[{{"Label": "A", "WikidataId": "Q{number}"}}]\t[]\n'
    )


def shown(number, user, time, history, candidates):
    return f"{number}\t{user}\t{time}\t{history}\t{candidates}\n"


def write(folder, news, behaviors):
    (folder / "news.tsv").write_text("".join(news), encoding="utf-8")
    (folder / "behaviors.tsv").write_text("".join(behaviors), encoding="utf-8")
    return folder


def log(count=10, people=("u", "v")):
    """Impressions, latest first, each of 6 articles of its own, one of them opened."""
    return [
        Impression(
            user,
            datetime(2019, 11, 9, 23 - number),
            "N1 N2 N3",
            " ".join(f"{user}x{number}x{n}-{int(n == number % 6)}" for n in range(6)),
        )
        for number in range(count)
        for user in people
    ]


def titles(impressions):
    titles_by_id = {f"N{number}": f"title {number}" for number in range(1, 4)}
    for impression in impressions:
        titles_by_id.update((name, f"title {name}") for name, _ in impression.candidates())
    return titles_by_id


def divide(impressions, news=None, *, users=1, seed=0, **options):
    left_out = LeftOut()
    news = titles(impressions) if news is None else news
    chosen = busiest_readers(news, impressions, left_out)[:users]
    conversion = convert_impressions(
        news, impressions, users=chosen, seed=seed, left_out=left_out, **options
    )
    return conversion, left_out.counts()


def test_the_format(tmp_path):
    news = [article(1, 'A "quoted title, é'), article(2, "Other"), article(1, "Again")]
    times = ["11/12/2019 2:14:46 PM", "1/2/2019 12:00:01 AM", "1/2/2019 12:00:01 PM"]
    behaviors = [shown(n, "U7", time, "N1 N2", "N2-0 N1-1") for n, time in enumerate(times)]
    write(tmp_path, news, [*behaviors, shown(4, "U8", times[0], "", "N2-1")])
    left_out = LeftOut()
    assert read_news(tmp_path / "news.tsv", left_out) == {"N1": 'A "quoted title, é', "N2": "Other"}
    impressions = list(read_impressions(tmp_path / "behaviors.tsv", left_out))
    assert impressions == [
        Impression("U7", datetime(2019, 11, 12, 14, 14, 46), "N1 N2", "N2-0 N1-1"),
        Impression("U7", datetime(2019, 1, 2, 0, 0, 1), "N1 N2", "N2-0 N1-1"),
        Impression("U7", datetime(2019, 1, 2, 12, 0, 1), "N1 N2", "N2-0 N1-1"),
        Impression("U8", datetime(2019, 11, 12, 14, 14, 46), "", "N2-1"),
    ]
    assert list(impressions[0].candidates()) == [("N2", False), ("N1", True)]
    assert left_out.counts() == {}


def test_damaged_lines_are_counted(tmp_path):
    time = "11/12/2019 2:14:46 PM"
    news = [article(1, "One"), article(2, " "), "N3\tnews\tnewsworld"]
    behaviors = [
        shown(1, "U7", time, "N1", "N1-1"),
        shown(2, "U7", time, "N1", "N1-1 N2"),
        shown(3, "U7", time, "N1,N2", "N1-1"),
        shown(4, "U7", "2019-11-12 14:14:46", "N1", "N1-1"),
        shown(5, "U7", "13/12/2019 2:14:46 PM", "N1", "N1-1"),
        shown(6, "U7", "11/12/2019 14:14:46 PM", "N1", "N1-1"),
        shown(7, "", time, "N1", "N1-1"),
        "8\tU7\t11/12",
    ]
    write(tmp_path, news, behaviors)
    left_out = LeftOut()
    assert read_news(tmp_path / "news.tsv", left_out) == {"N1": "One"}
    assert len(list(read_impressions(tmp_path / "behaviors.tsv", left_out))) == 1
    assert left_out.counts() == {
        "damaged rows of news.tsv": 2,
        "damaged rows of behaviors.tsv": 7,
    }
    assert "row 2: news without a title" in left_out.lines()[0]
    assert "row 2: no user, no time like" in left_out.lines()[1]


def test_the_latest_impressions_are_tested():
    conversion, left_out = divide(log())
    by_user = check(conversion)
    assert list(by_user) == [None, "u"]
    opened = [row.judged for row in by_user["u"] if row.label]
    assert opened == [f"title ux{number}x{number % 6}" for number in range(9, -1, -1)]
    test = split(by_user["u"], "test")
    assert [row.judged for row in test if row.label] == opened[7:]
    assert len(test) == 15
    assert {row.history for row in conversion.rows} == {("title 1", "title 2", "title 3")}
    assert left_out == {}


def test_negatives_are_of_the_same_impression():
    for negatives in (1, 4, 99):
        conversion, _ = divide(log(), negatives=negatives, history=2)
        rows = check(conversion)["u"]
        assert len(rows) == 10 * (1 + min(negatives, 5))
        impressions = {}
        for row in rows:
            impressions.setdefault(row.judged.rpartition("x")[0], []).append(row.label)
        assert all(sum(labels) == 1 for labels in impressions.values())
        assert {row.history for row in rows} == {("title 2", "title 3")}


def test_public_rows_are_a_sample_of_the_others():
    impressions = log(people=("u", *(f"p{number}" for number in range(9))))
    every, _ = divide(impressions)
    drawn, _ = divide(impressions, public=20)
    public = [row.judged for row in drawn.rows if row.split == "public"]
    assert len(public) == 20
    assert len({name.split("x")[0] for name in public}) > 2
    for row in drawn.rows:
        if row.split == "public":
            assert row.judged.startswith(f"title {row.user}x")
    assert sum(row.split == "public" for row in every.rows) == 90 * 5
    assert [row for row in drawn.rows if row.split != "public"] != []
    assert divide(impressions, public=20)[0].rows == drawn.rows
    assert divide(impressions, public=20, seed=1)[0].rows != drawn.rows


def test_users_are_those_with_most_impressions_of_known_news():
    impressions = [*log(9, ["busy"]), *log(3, ["a", "b"]), *log(2, ["c"]), *log(20, ["unknown"])]
    news = titles(impressions)
    for name in [name for name in news if name.startswith("unknown")]:
        del news[name]
    conversion, left_out = divide(impressions, news, users=2)
    assert list(check(conversion)) == [None, "busy", "a"]
    assert left_out == {"candidates that are not in news.tsv": 120}
    with pytest.raises(DataError, match="0 public rows beside 4 users"):
        divide(impressions, news, users=4)


def test_unknown_news_is_left_out_of_histories():
    impressions = log(4)
    news = titles(impressions)
    del news["N2"]
    conversion, left_out = divide(impressions, news)
    assert {row.history for row in conversion.rows} == {("title 1", "title 3")}
    assert left_out == {"articles in histories that are not in news.tsv": 8}


def test_the_command(tmp_path):
    impressions = log()
    news = [article(0, title).replace("N0", name, 1) for name, title in titles(impressions).items()]
    behaviors = [
        shown(number, each.user, f"{each.time:%m/%d/%Y %I:%M:%S %p}", each.history, each.shown)
        for number, each in enumerate(impressions)
    ]
    write(tmp_path, news, [*behaviors, "torn"])
    done = run("mind", tmp_path, "--users", 1, "--history", 2, "--negatives", 3)
    assert done.exit_code == 0
    expected, _ = divide(impressions, history=2, negatives=3)
    assert done.stdout_bytes == b"".join(expected.lines())
    assert done.stderr.splitlines()[:2] == [  # read twice, counted once
        "warning: left out 1 damaged rows of behaviors.tsv; the first: row 21: no user, no "
        "time like 11/12/2019 2:14:46 PM, or no ids of news",
        "u: 40 examples, 30.0 % test, 25.0 % label 1",
    ]


def test_the_real_damaged_sample_loads_with_a_warning(tmp_path):
    done = run("mind", real_data("mind-sample"), "--users", 5, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0
    counts = json.loads(done.stdout)
    assert counts["left_out"]["candidates that are not in news.tsv"] == 184_049
    assert counts["left_out"]["articles in histories that are not in news.tsv"] == 153_641
    assert len(counts["users"]) == 5
    assert counts["public"]["labels"]["1"] > 100
