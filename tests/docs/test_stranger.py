"""A stranger's ten questions have their answers on README's first screens, before any heading."""

import pytest

from checkout import ROOT

FIRST = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]

ANSWERS = {
    "What is it for?": "Keep a user's personal model when the backbone under it is replaced",
    "What goes wrong without it?": "politics is back",
    "How does it work?": "one regression in closed form",
    "Does the phone train?": "only ever runs models forward",
    "How soon does it work?": "at once",
    "How do I try it?": "fala-replace --old glove --new bert",
    "Does it need a network?": "offline",
    "What do I write in an app?": "device.replace(bert",
    "What if the new model is worse?": "device.rollback()",
    "What of the user's texts?": "`forget` is exact",
}


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_is_answered(question):
    assert ANSWERS[question] in " ".join(FIRST.split())
