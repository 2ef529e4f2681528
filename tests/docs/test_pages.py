"""The reference has every public name, and links and pictures are correct."""

import re

import pytest

import fala
import fala.testing
import fala_export
from checkout import ROOT
from snippets import PAGES

REFERENCE = ROOT / "docs" / "reference"
_DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "module"),
    [("app.md", fala), ("release.md", fala_export), ("testing.md", fala.testing)],
)
def test_the_reference_has_every_public_name(page, module):
    documented = set(_DIRECTIVE.findall((REFERENCE / page).read_text(encoding="utf-8")))
    expected = {f"{module.__name__}.{name}" for name in module.__all__}
    assert documented - {"fala.testing"} == expected


def test_the_citation_has_the_current_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", text, re.MULTILINE)[1] == fala.__version__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_exist(page):
    """`mkdocs build --strict` checks neither README's links nor all pictures."""
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target


def test_pages_load_nothing_from_other_sites():
    """No remote font, script or picture, so that the site works offline."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^ +font: false", text, re.MULTILINE)
    assert "http" not in text.replace("http://", "http")
    for page in PAGES:
        assert not re.search(r"!\[[^]]*\]\(http|src=.http", page.read_text(encoding="utf-8"))


def test_the_first_page_shows_the_snippets_figures():
    page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    shown = re.findall(r"^<output.*? (\.\d+)", page, re.MULTILINE)
    snippet = (ROOT / "examples/first.py").read_text("utf-8")
    old, instant, refined = re.findall(r"0(\.\d+)\]\]", snippet)
    (vendors,) = re.findall(r"would give this post 0(\.\d+),", snippet)
    assert [*map(float, shown)] == [*map(float, (old, vendors, instant, refined))]
