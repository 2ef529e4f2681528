"""Measured figures in the documentation's pages are those of the records."""

import re

import pytest

import pages
from checkout import ROOT, needs_records
from fala import DataError

#: Pages whose measured figures all stand in blocks.
WITHOUT_COPIES = (
    "README.md", "docs/figures.md", "docs/index.md", "docs/peers.md", "docs/results.md",
)  # fmt: skip

#: What is not measured, or is checked by another test, with the reason.
EXCEPTIONS = {
    r"Python 3\.\d+|\b1\.19\.2\b|License 2\.0": "a version",
    r"<output.*?</output>": "printed by the snippet, which another test compares",
    r"95 % interval|95 %": "the level of all intervals",
    r"±\.01|\.005|probability of \.5": "a limit of the verdicts, or of a decision",
    r"0\.5 to 4 billion|under 1 GB|for 20 minutes": "of a cited paper",
}

MEASURED = re.compile(
    r"""(?<![\w.])[-+±]?\d*\.\d+(?:e\d+)?      # .82, 19.8, -0.9, 2.3e13
      | \d+\ ?%                       # 17 %
      | \d[\d,]*\ of\ (?:the\ )?\d+   # 3 of 4
      | \d[\d,]*\ (?:s|ms|seconds|minutes|hours|kB|MB|GB)\b
      | \d+e\d+
    """,
    re.VERBOSE,
)


def prose(text):
    """A page without blocks, code, the targets of links and what is not measured."""
    text = pages.BLOCK.sub(" ", text)
    text = re.sub(r"^( *)```.*?^\1```$", " ", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]+`|\]\([^)]+\)", " ", text)
    return re.sub("|".join(EXCEPTIONS), " ", text)


@needs_records
def test_the_blocks_of_the_pages_are_those_of_the_records():
    assert not (difference := pages.differences()), f"{difference}\nrun python recipes/pages.py"


@needs_records
@pytest.mark.parametrize("call", ["nothing", "figure wrong", "figure wrong glove multipico fala"])
def test_a_block_that_cannot_be_written_names_what_is_wrong(call):
    with pytest.raises(DataError, match=r"no block|missing a required|no record of"):
        pages.written(f"<!-- generated: {call} --><!-- end -->", ROOT / "README.md")


@needs_records
def test_a_stale_block_is_written_again_and_only_it():
    stale = "Before <!-- generated: people headline -->13<!-- end --> after, 13.\n"
    right = stale.replace("13<", "153<")
    assert pages.written(stale, ROOT / "docs/figures.md") == right
    assert pages.written(right, ROOT / "docs/figures.md") == right


def test_a_block_within_a_line_does_not_begin_it():
    """Python-Markdown ends a paragraph at a comment that begins a line."""
    for page in pages.pages():
        for match in pages.BLOCK.finditer(text := page.read_text(encoding="utf-8")):
            assert "\n" in match[2] or text[: match.start()].rpartition("\n")[2].strip(), match[0]


@pytest.mark.parametrize("page", WITHOUT_COPIES)
def test_no_measured_figure_stands_outside_blocks(page):
    assert not MEASURED.findall(prose((ROOT / page).read_text(encoding="utf-8")))


def test_the_pattern_finds_measured_figures_and_no_others():
    shown = ["+.013", "19.8", "17 %", "3 of 4", "2 seconds", "2.3e13", "821 of 900"]
    assert MEASURED.findall(prose(" and ".join(shown))) == shown
    assert not MEASURED.findall(prose("Python 3.10, `.82`, [12](a/1.5), 20 passes, six sets"))
