"""The data sets that have a name: their format, their publisher and their licence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fala import DataError
from fala_sim.convert.formats import FORMATS

# A commit, so that the files are those whose checksums are below.
_LEWIDI = (
    "https://raw.githubusercontent.com/Le-Wi-Di/le-wi-di.github.io/"
    "45d7b06e4c36b59472d6bdf9281f7f1e395eb0e0/LeWiDi_2-2023"
)
_FIGSHARE = "https://ndownloader.figshare.com/files"


@dataclass(frozen=True)
class File:
    """What a publisher gives.

    Attributes:
        url: Where.
        name: What it is called in the data set's folder. An archive (``.zip``, ``.tar.gz``) is
            unpacked there, without the one folder that it has everything in.
        sha256: The checksum, where it is known; else that of the first download is kept, and all
            later ones are held to it.
        md5_url: Where the publisher tells the file's MD5; "" where it does not.
    """

    url: str
    name: str
    sha256: str = ""
    md5_url: str = ""


@dataclass(frozen=True)
class DataSet:
    """A data set that has a name.

    Attributes:
        name: For ``--data``.
        title: For people.
        format: A name of ``FORMATS``.
        folders: Where it may lie in the folder of data sets; ``data get`` puts it into the first.
        licence: Its terms, in words.
        page: The publisher's page.
        files: What is brought; none where the publisher asks people to accept terms by hand.
    """

    name: str
    title: str
    format: str
    folders: tuple[str, ...]
    licence: str
    page: str
    files: tuple[File, ...] = ()


def _lewidi(name: str, prefix: str, title: str, checksums: Sequence[str]) -> DataSet:
    files = [f"{prefix}_{part}.json" for part in ("train", "dev", "test")]
    return DataSet(
        name, title, "lewidi", (name,),
        licence="none stated by the task; posts are their authors', for research",
        page="https://github.com/Le-Wi-Di/le-wi-di.github.io",
        files=tuple(
            File(f"{_LEWIDI}/{prefix}_dataset/{file}", file, sha256)
            for file, sha256 in zip(files, checksums, strict=True)
        ),
    )  # fmt: skip


_ALL = (
    _lewidi(
        "md-agreement", "MD-Agreement",
        "MD-Agreement (SemEval-2023 task 11): posts, offensive or not, by annotator",
        (
            "0b100595f7d10fd9b4624c647af2888597472b2dea90643dc788278714f57a6d",
            "b42b6b54015589504de259241e14c17ff605baab4eb146effcb17a95fbfd69f5",
            "a30f185ece8bc99a45ce50e0311593ee1a6882a816c93f6915cabd368f3fad53",
        ),
    ),
    _lewidi(
        "hs-brexit", "HS-Brexit",
        "HS-Brexit (SemEval-2023 task 11): posts, hate speech or not, by six annotators",
        (
            "d204d83c7b1a73f037b3aff36aac61357c08a96f96292a37ac7655eb562d81fb",
            "77c17f95985cbb6db47ffcda637e717a9074f2660e15b5c0c1f9006f50da60a7",
            "24e5e1615818ff6e3b96e50245cfe10636ef8ec0ea51f2c2a60acb68858fd195",
        ),
    ),
    DataSet(
        "movielens", "MovieLens, latest small: films that people rated", "movielens",
        ("movielens-small",),
        licence="GroupLens: research, no commercial use without permission, same terms passed on",
        page="https://grouplens.org/datasets/movielens/latest/",
        files=(
            File(
                "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
                "ml-latest-small.zip",
                md5_url="https://files.grouplens.org/datasets/movielens/ml-latest-small.zip.md5",
            ),
        ),
    ),
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
    DataSet(
        "mind", "MIND small (Wu et al., 2020): news that people were shown and opened", "mind",
        ("mind-small", "mind-sample"),
        licence="Microsoft Research License Terms: research, no commercial use",
        page="https://msnews.github.io/",
    ),
    DataSet(
        "detox", "Wikipedia Detox (Wulczyn et al., 2017): aggression in comments, by worker",
        "detox", ("detox",),
        licence="CC0; the comments' text CC BY-SA 3.0",
        page="https://doi.org/10.6084/m9.figshare.4267550",
        files=(
            File(f"{_FIGSHARE}/7038038", "aggression_annotated_comments.tsv"),
            File(f"{_FIGSHARE}/7394506", "aggression_annotations.tsv"),
        ),
    ),
    DataSet(
        "cola", "CoLA (Warstadt et al., 2018): sentences of linguists, acceptable or not", "cola",
        ("cola",),
        licence="none stated by the publisher; sentences are their authors', for research",
        page="https://nyu-mll.github.io/CoLA/",
    ),
    DataSet(
        "mrpc", "MRPC (Dolan and Brockett, 2005): pairs of sentences, paraphrases or not", "mrpc",
        ("mrpc",),
        licence="Microsoft Research: terms are accepted where it is downloaded, for research",
        page="https://www.microsoft.com/en-us/download/details.aspx?id=52398",
    ),
)  # fmt: skip

#: Every data set that has a name.
CATALOGUE: dict[str, DataSet] = {each.name: each for each in _ALL}


def find_data_set(name: str) -> DataSet:
    """A data set by name.

    Raises:
        DataError: If there is none; names those there are.
    """
    if name not in CATALOGUE:
        raise DataError(
            f"no data set {name!r}; one of {', '.join(CATALOGUE)}, or FORMAT:DIR with a format of "
            f"{', '.join(name for name, form in FORMATS.items() if form.files)}, or rows:FILE"
        )
    return CATALOGUE[name]
