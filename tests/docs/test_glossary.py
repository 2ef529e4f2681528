"""The glossary has one meaning for each word, and the pages use its words."""

import re

import pytest

from checkout import ROOT
from snippets import PAGES

GLOSSARY = ROOT / "docs" / "glossary.md"
_RESULTS = ROOT / "device_sim" / "results" / "README.md"  # a page shows it


def rows(heading):
    """The cells of the glossary's table with a heading."""
    _, _, table = GLOSSARY.read_text(encoding="utf-8").partition(f"| {heading} |")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def prose(page):
    """A page's text in one line, without code, links' targets and comments."""
    text = re.sub(r"^( *)```.*?^\1```$", " ", page.read_text("utf-8"), flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->|`[^`]+`|\]\([^)]+\)", " ", text, flags=re.S)
    return " ".join(text.split())


def test_a_word_has_one_meaning_and_words_are_in_order():
    words = [word for word, _ in rows("word | meaning")]
    assert len(words) > 30
    assert words == sorted(set(words), key=str.casefold)


def test_pages_use_the_glossarys_words():
    others = " ".join(prose(page) for page in [*PAGES, _RESULTS] if page != GLOSSARY).casefold()
    words = [part for word, _ in rows("word | meaning") for part in word.split(", ")]
    assert [word for word in words if word.casefold().removesuffix("s") not in others] == []


@pytest.mark.parametrize("word", [word for word, _ in rows("instead of | they say")])
def test_no_page_uses_a_word_that_the_glossary_replaces(word):
    found = re.compile(rf"\b{re.escape(word)}s?\b", re.IGNORECASE)
    pages = [page for page in [*PAGES, _RESULTS] if page != GLOSSARY]
    assert [page.name for page in pages if found.search(prose(page))] == []
