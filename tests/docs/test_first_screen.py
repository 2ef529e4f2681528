"""README is short, and what it shows a stranger first is true.

Other tests hold its figures to the records (``test_figures.py``), run its snippets and its command
(``test_snippets.py``), and find the files that it links (``test_pages.py``).
"""

import re

from checkout import ROOT
from snippets import PAGES, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
SCREEN = README[: README.index("\n## Documentation")]


def words(text):
    """The number of words, without code, tables and comments."""
    text = re.sub(r"^```.*?^```$|^\|.*?$|<!--.*?-->", " ", text, flags=re.MULTILINE | re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def anchors(page):
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", each.lower())) for each in headings}


def test_the_first_screen_is_short():
    assert words(SCREEN) <= 450
    assert README.index("pip install") < README.index("\n|")  # before any figure


def test_its_extras_exist():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(
        r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.M
    )
    named = re.findall(r"'\.\[(\w+)\]'", README)
    assert {"demo", "docs", "dev"} <= set(named) <= set(extras)


def test_its_links_lead_to_headings():
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", README):
        assert anchor in anchors(ROOT / (target or "README.md")), f"{target}#{anchor}"


def test_no_page_installs_from_an_index_that_does_not_have_it():
    lines = [line for block in blocks("sh", "text", "console") for line in block.text.splitlines()]
    lines += [
        line for page in PAGES for line in re.findall(r"`([^`\n]+)`", page.read_text("utf-8"))
    ]
    assert [line for line in lines if re.search(r"pip install[^#]* fala-sdk", line)] == []
