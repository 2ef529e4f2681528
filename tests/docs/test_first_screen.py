"""README answers a stranger's questions before its first list of links, in few words."""

import re

import pytest

from checkout import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SCREEN = README[: README.index("\n## ")]

#: What a stranger asks, and what the answer has.
QUESTIONS = {
    "What is it for?": r"^\*\*Keep a user's personal model when the backbone under it is replaced",
    "Who needs it?": r"The vendor ships a better language model, and politics is back",
    "How do I install it?": r"^pip install -e \.",
    "How do I try it?": r"fala-replace --old glove --new bert",
    "What does an app call?": r"^ +device\.replace\(",
    "What is a release, and who makes it?": r"\*release\* is the file that a vendor ships",
    "Do labels leave the device?": r"labels\s+stay on the device",
    "What if power fails?": r"After a kill at any time",
    "What if the new model is worse?": r"`rollback`",
    "Is a phone able to train, too?": r"A phone can fine-tune",
    "When is it not for me?": r"^Not for you if",
    "Where does an app developer begin?": r"\]\(docs/paths/app\.md\)",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_from_the_first_screen(question):
    assert re.search(QUESTIONS[question], SCREEN, re.MULTILINE)


def table(number):
    """The columns and the rows of one of the screen's tables, by the first cell of each."""
    tables = re.findall(r"(?:^\|.+\n)+", SCREEN, re.MULTILINE)
    header, _, *rows = [
        [cell.strip(" *") for cell in line.strip("|").split("|")]
        for line in tables[number].splitlines()
    ]
    return header[1:], {row[0]: row[1:] for row in rows}


def test_a_table_says_whether_it_beats_the_new_and_the_old_model():
    columns, rows = table(0)
    assert columns == ["vendor's new", "old personal", "FaLA at once", "FaLA, 20 passes"]
    assert len(rows) >= 3
    assert all(re.fullmatch(r"\d+\.\d", cell) for row in rows.values() for cell in row)


def test_a_table_says_what_training_on_the_device_costs():
    columns, rows = table(1)
    assert columns[-1] == "LoRA on the device"
    *ours, lora = rows["backward passes"][1:]
    assert set(ours) == {"0"} and int(lora.replace(",", "")) > 100
    *ours, lora = map(int, rows["memory growth, MB"][1:])
    assert max(ours) < lora


def test_the_first_screen_is_short():
    text = re.sub(r"<!--.*?-->", "", SCREEN)
    assert sum(bool(re.search(r"\w", word)) for word in text.split()) < 450
    assert README.index("pip install") < README.index("\n|")  # before any figure
