"""Film reviews by four writers (Pang and Lee, ACL 2005: scale data 1.0), each a user.

A folder has one folder per writer, with ``subj.WRITER``, which has one review per line. The same
line of ``rating.WRITER`` has the writer's own rating from 0 to 1, and the same line of
``label.3class.WRITER`` has its class: 0, 1 or 2.

Here the annotators are the writers, and each has labelled only the writer's own reviews. Writers
who are not users are the public. A file has one public, so by default two writers (those with most
reviews) are users, and two are the public. In the benchmarks they take turns: ``--users 1 --seeds
4`` tests each of them, with the other three as the public.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

from fala import DataError
from fala.base.errors import counted
from fala_sim.data.annotators import Document, Documents, opener_of
from fala_sim.data.format import DataSet, Format
from fala_sim.data.left_out import LeftOut
from fala_sim.data.tables import read_lines

#: Least and largest of the writers' own ratings.
RATING = (0.0, 1.0)

_CLASSES = {"0": 0, "1": 1, "2": 2}


def read_reviews(folder: Path, left_out: LeftOut, *, rated: bool = False) -> list[Document]:
    """Read the reviews of all writers.

    Args:
        folder: Folder with the writers' folders.
        left_out: Counts reviews without a text or a label.
        rated: Whether labels are the writers' ratings instead of classes.

    Returns:
        The documents, labelled by writer.

    Raises:
        DataError: There is no writer, a file cannot be read, or a writer's two files have different
            numbers of lines.
    """
    try:
        writers = sorted(
            path.name for path in folder.iterdir() if (path / f"subj.{path.name}").is_file()
        )
    except OSError as error:
        raise DataError(f"cannot read {str(folder)!r}: {error.strerror}") from error
    if not writers:
        raise DataError(f"no scale reviews in {str(folder)!r}: expected WRITER/subj.WRITER")
    documents = Documents()
    kind, expected = ("rating", "rating from 0 to 1") if rated else (
        "label.3class", "class of 0, 1 or 2"
    )  # fmt: skip
    for writer in writers:
        review_path = folder / writer / f"subj.{writer}"
        label_path = folder / writer / f"{kind}.{writer}"
        reviews = read_lines(review_path)
        labels = read_lines(label_path)
        if len(reviews) != len(labels):
            raise DataError(
                f"{review_path} has {counted(len(reviews), 'line')}, but {label_path} has "
                f"{len(labels)}: labels cannot be assigned to reviews"
            )
        for number, (text, line) in enumerate(zip(reviews, labels, strict=True), start=1):
            label = _label(line, rated=rated)
            if not text.strip():
                left_out.add("empty reviews", f"{review_path.name}, line {number}")
            elif label is None:
                left_out.add(f"reviews without a {expected}", f"{label_path.name}, line {number}")
            elif writer in (labels_of := documents.find(text).labels):
                left_out.add("reviews that occur twice")
            else:
                labels_of[writer] = label
    # A file is sorted by label, so its first reviews would all have the same label.
    reviews_of_all = documents.all()
    return random.Random(0).sample(reviews_of_all, len(reviews_of_all))


def _label(line: str, *, rated: bool) -> float | None:
    """Return the label of a line, or None if it is not a label."""
    if not rated:
        return _CLASSES.get(line.strip())
    try:
        number = float(line)
    except ValueError:
        return None
    return number if RATING[0] <= number <= RATING[1] else None


FORMATS = {
    name: Format(
        opener_of(partial(read_reviews, rated=rating is not None), rating),
        ("*/subj.*", f"*/{labels}.*"),
        f"""Convert Pang and Lee's scale data: the writers' folders in DIR, {words}.

        The writers who are not users are the public.
        """,
        users=2,
        in_turn=True,
    )
    for name, labels, words, rating in (
        ("scale-reviews", "label.3class", "three classes", None),
        ("scale-ratings", "rating", "ratings from 0 to 1", RATING),
    )
}

DATA_SETS = tuple(
    DataSet(
        name, f"Scale data 1.0 (Pang and Lee, 2005): film reviews by four writers, {labels}",
        name, ("scale-reviews",),
        licence="none stated by the publisher; research, with the paper cited",
        page="https://www.cs.cornell.edu/people/pabo/movie-review-data/",
        by_hand="no checksum is published, so download scale_data.tar.gz yourself",
    )
    for name, labels in (("scale-reviews", "three classes"), ("scale-ratings", "ratings"))
)  # fmt: skip
