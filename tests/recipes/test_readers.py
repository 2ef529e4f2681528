"""The wrong decisions of the page's readers: records, documentation, and a run again."""

import json
import re

import numpy as np
import pytest

import readers
from checkout import ROOT
from fala_sim import sample_release
from fala_sim.playground.page.posts import PASSES, posts_of

PAGE = (ROOT / "docs/built-in.md").read_text("utf-8")
RECORD = json.loads(readers.RECORD.read_text("utf-8"))


def test_the_documentation_has_the_records_figures():
    assert "\n".join(readers.table()) in PAGE
    vendor, old, _, later, _ = np.mean(RECORD, axis=1).T
    assert (later < vendor).all()  # "for all six readers"
    assert (old < later).sum() == 3  # "for three of them"
    for name in ("glove", "bert"):
        (megabytes,) = re.findall(rf"^- `{name}` \(.*?([\d.]+) MB", PAGE, re.MULTILINE)
        assert float(megabytes) == round(sample_release(name).stat().st_size / 1e6, 1)


def test_the_pictures_words_have_the_records_figures():
    """It shows the first reader in the first order."""
    figures = {"100", str(PASSES), *map(str, RECORD[0][0])}
    words = re.findall(r"!\[(.+)\]\(\S*demo.webp\)", (ROOT / "README.md").read_text("utf-8"))
    assert words
    assert set(re.findall(r"\d+", " ".join(words))) <= figures


@pytest.mark.thorough
def test_a_run_again_has_the_records_figures():
    # int8 arithmetic differs between processors.
    assert readers.wrong_decisions(posts_of(0, 1)) == pytest.approx(RECORD[0][0], abs=2)
