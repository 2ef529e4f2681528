"""README answers a stranger's questions before its first list of links, in few words."""

import re

import pytest

from checkout import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SCREEN = README[: README.index("\n## Documentation")]

#: What a stranger asks, and what the answer has.
QUESTIONS = {
    "What is it for?": r"^\*\*Upgrade the text encoder in your app without losing",
    "Who needs it?": r"You ship a better encoder, and politics is back",
    "How do I install it?": r"^pip install -e \.",
    "How do I try it?": r"fala-replace --old glove --new bert",
    "What does an app call?": r"^ +device\.replace\(",
    "What is a release, and who makes it?": r"\*release\* is the file that a vendor ships",
    "Must I have a vendor?": r"An app that has an encoder needs no release",
    "Is it for my kind of app?": r"photo libraries, mail, feed readers",
    "And my search index?": r"A search index has nothing to carry\s+over",
    "Do labels leave the device?": r"texts and\s+labels never leave the device",
    "What if power fails?": r"If the process is killed",
    "What if the new model is worse?": r"`device\.rollback\(\)`",
    "When is it not for me?": r"^## When to use something else",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_from_the_first_screen(question):
    assert re.search(QUESTIONS[question], SCREEN, re.MULTILINE)


def test_a_question_has_its_next_page():
    for page in ("docs/paths/app.md", "docs/paths/vendor.md", "docs/paths/researcher.md"):
        assert f"]({page})" in README


def test_the_table_says_whether_it_beats_the_new_and_the_old_model():
    (table,) = re.findall(r"(?:^\|.+\n)+", SCREEN, re.MULTILINE)
    header, _, *rows = [
        [cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()
    ]
    assert header[1:4] == ["new model alone", "old personal model", "FaLA"]
    assert len(rows) >= 3
    for row in rows:
        new, _, ours = map(float, row[1:4])
        difference, low, high = map(float, re.findall(r"[-+]?\d+\.\d", row[4]))
        assert difference == pytest.approx(ours - new, abs=0.11) and low < difference < high


def test_the_first_screen_is_short():
    text = re.sub(r"<!--.*?-->", "", SCREEN)
    assert sum(bool(re.search(r"\w", word)) for word in text.split()) < 650
    assert README.index("pip install") < README.index("\n|")  # before any figure
