"""Film reviews by four writers (Pang and Lee, ACL 2005: scale data 1.0), each a user.

A folder has one folder a writer, with ``subj.WRITER``, a review a line, and
``label.3class.WRITER``, on the same line the class of the writer's own rating: 0, 1 or 2.

An annotator is here a writer, who labelled only what this writer wrote. Writers who are not users
are the public. A file has one public, so each writer cannot be left out in turn within it; of four,
two users (those with most reviews) and a public of two is the default.
"""

from __future__ import annotations

from pathlib import Path

from fala import DataError
from fala_sim.convert.annotators import Document, Documents, annotated
from fala_sim.convert.format import DataSet, File, Format
from fala_sim.convert.left_out import LeftOut
from fala_sim.convert.tables import read_lines

CLASSES = ("0", "1", "2")


def read_folder(folder: Path, left_out: LeftOut) -> list[Document]:
    """Read the reviews of all writers.

    Args:
        folder: Has the writers' folders.
        left_out: Where damage is counted.

    Returns:
        The documents, labelled by writer.

    Raises:
        DataError: If there is no writer, a file cannot be read, or a writer's two files have
            different numbers of lines.
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
    for writer in writers:
        review_path = folder / writer / f"subj.{writer}"
        label_path = folder / writer / f"label.3class.{writer}"
        reviews = dict(read_lines(review_path, left_out))
        labels = dict(read_lines(label_path, left_out))
        if len(reviews) != len(labels):
            raise DataError(
                f"{review_path} has {len(reviews)} lines, but {label_path} has {len(labels)}: "
                "which class is whose is unknown"
            )
        for number, text in reviews.items():
            label = labels[number]
            if text is None:
                continue  # counted already
            if not text.strip():
                left_out.add("empty reviews", f"{review_path.name}, line {number}")
            elif label is None or label.strip() not in CLASSES:
                left_out.add(
                    "reviews without a class of 0, 1 or 2", f"{label_path.name}, line {number}"
                )
            elif writer in (known := documents.find(text).labels):
                left_out.add("reviews that are there twice")
            else:
                known[writer] = int(label)
    return documents.all()


FORMATS = {
    "scale-reviews": Format(
        annotated(read_folder),
        ("*/subj.*", "*/label.3class.*"),
        """Convert Pang and Lee's scale data: the writers' folders in DIR, three classes.

        Those of the four writers who are not users are the public.
        """,
        users=2,
    )
}

DATA_SETS = (
    DataSet(
        "scale-reviews", "Scale data 1.0 (Pang and Lee, 2005): film reviews by four writers",
        "scale-reviews", ("scale-reviews",),
        licence="none stated by the publisher; research, with the paper cited",
        page="https://www.cs.cornell.edu/people/pabo/movie-review-data/",
        files=(
            File(
                "https://www.cs.cornell.edu/people/pabo/movie-review-data/scale_data.tar.gz",
                "scale_data.tar.gz",
            ),
        ),
    ),
)  # fmt: skip
