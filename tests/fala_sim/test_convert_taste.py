from functools import partial

from conversions import read_by
from fala_sim.data.annotators import Document
from fala_sim.data.formats.taste import ANIME, BOOKS, read_ratings

ANIME_FILES = {
    "anime_info.dat": (
        "anime_ids\tname\tgenre\ttype\tepisodes\trating\tmembers\n"
        "3\tRoberta&#039;s é\tAction, Drama\tTV\t12\t8.1\t99\n"
        "4\tAlone\t\t\t1\t6.2\t9\n"
        "5\t \tDrama\tTV\t1\t6.2\t9\n"
        "6\t\tDrama\n"
    ),
    "anime_ratings.dat": (
        "User_ID\tAnime_ID\tFeedback\n"
        "1\t3\t8\n1\t4\t7\n2\t3\t10\n2\t3\t1\n2\t5\t5\n2\t4\t11\n2\t4\tnan\n\t4\t5\n2\t4\n"
    ),
}
# As the publisher has it: every semicolon is a tab, and each line ends with one.
BOOK_FILES = {
    "items_info.dat": (
        "Book_ID\tISBN\tBook-Title\tBook-Author\tYear-Of-Publication\tPublisher\tImage-URL-L\n"
        "1\t006X\tFirst: a Book\tAnn Author\t1991\tPress &amp\t Sons\thttp://1\t\n"
        "2\t007X\tTwins &amp\t Others\tB. Two\t0\tPress\thttp://2\t\n"
        "3\t008X\tNo year\tC. Three\tPress\thttp://3\t\n"
    ),
    "book_ratings.dat": (
        "user\titem\trating\n"
        "1\t1\t7.000000\n1\t2\t10.000000\n2\t1\t8.000000\n2\t3\t8.000000\n"
    ),
}  # fmt: skip


def write(folder, files):
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


read = partial(read_by, read_ratings)


def test_anime_have_names_kinds_and_genres(tmp_path):
    write(tmp_path, ANIME_FILES)
    documents, left_out = read(tmp_path, items=ANIME)
    assert documents == [
        Document("Roberta's é (TV) [Action, Drama]", {"1": 1, "2": 1}),
        Document("Alone", {"1": 0}),
    ]
    assert left_out.counts() == {
        "damaged rows of anime_info.dat": 2,
        "ratings of an item that the user had already rated": 1,
        "ratings of unknown items": 1,
        "damaged rows of anime_ratings.dat": 4,
    }
    rated, _ = read(tmp_path, items=ANIME, rated=True)
    assert [document.labels for document in rated] == [{"1": 8.0, "2": 10.0}, {"1": 7.0}]


def test_books_have_titles_and_authors(tmp_path):
    documents, left_out = read(write(tmp_path, BOOK_FILES), items=BOOKS)
    assert documents == [
        Document("First: a Book, by Ann Author", {"1": 0, "2": 1}),
        Document("Twins & Others, by B. Two", {"1": 1}),
    ]
    assert left_out.counts() == {
        "damaged rows of items_info.dat": 1,
        "ratings of unknown items": 1,
    }
