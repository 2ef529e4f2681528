"""A complete visit in a real browser: keyboard, phone width, dark mode, and a killed server."""

import json
import re

import pytest

from browser import open_browser
from fala import Device
from visits import served

pytestmark = pytest.mark.slow


PHONE = 360  # pixels
LONGEST = "Old personal model (active again): error rate 24 % (24 of 100); new model alone 39 %."
WIDTHS = (320, 414, 640, 959, 960, 1600, PHONE)

#: The id of the focused element, or its text.
FOCUS = "document.activeElement.id || document.activeElement.textContent"
STAGE = "document.body.dataset.stage"
IDLE = "document.body.dataset.busy === ''"

#: The browser's errors for a server that has ended, by the state of the connection, or that has
#: another token.
GONE = ("ERR_CONNECTION", "ERR_SOCKET_NOT_CONNECTED", "ERR_EMPTY_RESPONSE", " 403 ")


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as page:
        page.look(PHONE, dark=True)
        yield page


def value(tab, name):
    return tab.evaluate(f"document.getElementById('{name}').value")


def tab_to(tab, name):
    """Press Tab until an element is focused."""
    passed = []
    while (focused := tab.evaluate(FOCUS)) != name:
        passed.append(focused)
        assert len(passed) < 80, passed
        tab.press("Tab")
    return passed


def figures(tab, key):
    """A column's decisions, as displayed."""
    rows = "[...document.querySelectorAll('#table tbody tr')]"
    return tab.evaluate(f"{rows}.map(row => row.cells[1 + {key}].innerText)")


def check_layout(tab):
    """Assert: nothing is wider than the page, and a phone shows the summary in three lines."""
    wide = "document.documentElement.scrollWidth"
    for width in WIDTHS:
        tab.look(width, dark=True)
        assert tab.evaluate(wide) <= width
    size = "document.documentElement.style.fontSize"
    assert tab.evaluate(f"{size} = '200%', {wide}") <= PHONE
    tab.evaluate(f"{size} = ''")
    line = tab.evaluate("parseFloat(getComputedStyle(verdict).lineHeight)")
    for text in (tab.evaluate("verdict.textContent"), LONGEST):
        tab.evaluate(f"verdict.textContent = {json.dumps(text)}")
        assert 1 <= round(tab.evaluate("verdict.clientHeight") / line) <= 3, text
    for shown in tab.evaluate("[...document.querySelectorAll('td.answer')].map(e => e.innerText)"):
        assert re.match(r"([✓✕] )?(shown|muted)\s([5-9]\d) % probable", shown), shown
    costs = iter(tab.evaluate("[...costs.children].map(e => e.textContent)"))
    megabytes = [what.split(":")[0] for what, value in zip(costs, costs, strict=True)
                 if "MB" in value]  # fmt: skip
    assert megabytes == ["Download", "Download", "Disk", "Memory"]
    assert tab.evaluate("document.body.innerText").count("MB") == len(megabytes)


def requests(tab, name):
    """The requests of an action."""
    sent = [event["request"] for event in tab.of("Network.requestWillBeSent")]
    return [each for each in sent if each["url"].endswith(f"/api/{name}")]


def quiet(tab, *addresses):
    """Assert: no request to other addresses, no error in the console."""
    local = ("about:", *(address.partition("#")[0] for address in addresses))
    requested = {event["request"]["url"] for event in tab.of("Network.requestWillBeSent")}
    assert {address for address in requested if not address.startswith(local)} == set()
    assert not any("token" in address for address in requested)
    assert tab.of("Runtime.exceptionThrown") == []
    assert tab.of("Runtime.consoleAPICalled") == []
    errors = [event["entry"]["text"] for event in tab.of("Log.entryAdded")]
    assert [text for text in errors if not any(allowed in text for allowed in GONE)] == []


def test_a_complete_visit_by_keyboard_survives_a_killed_server(tab, tmp_path):
    with served(tmp_path) as (process, url):
        tab.go(url)
        tab.until(f"{STAGE} === 'labelling'")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 24)"
        assert "token" not in tab.evaluate("location.href")
        before = figures(tab, 0)

        # Label: by keys from anywhere but a text, by Enter; the focus stays where it is.
        for labelled, key in enumerate("12", 1):
            tab.press(key)
            tab.until(f"{IDLE} && document.getElementById('labels').value === {labelled}")
        tab.press("1", modifiers=2)
        tab.evaluate("text.focus()")
        tab.press("1")
        assert value(tab, "text") == "1"
        tab.evaluate("ask.reset()")
        tab.evaluate("again.focus()")
        tab.press("1")
        tab.until(f"{IDLE} && document.getElementById('labels').value === 3")
        tab.evaluate("fine.focus()")
        tab_to(tab, "unwelcome")
        tab.press("Enter")
        tab.until(f"{IDLE} && document.getElementById('labels').value === 4")
        # A second press before the next post is on the page does nothing.
        tab.evaluate("unwelcome.click(); fine.click(); fine.click()")
        tab.until(f"{IDLE} && document.getElementById('labels').value === 5")
        assert [json.loads(sent["postData"])["label"] for sent in requests(tab, "label")] == [
            0, 1, 0, 1, 1,
        ]  # fmt: skip
        assert tab.evaluate(FOCUS) == "unwelcome"
        assert figures(tab, 0) != before
        assert "5 labelled" in tab.evaluate("document.getElementById('news').textContent")
        check_layout(tab)

        # The vendor ships; the focus moves to the next control.
        tab_to(tab, "ship")
        tab.press("Enter")
        tab.until(f"{STAGE} === 'shipped' && {IDLE}")
        assert tab.evaluate(FOCUS) == "refine"
        assert tab.evaluate("verdict.getBoundingClientRect().top") >= 0
        assert tab.evaluate("figures.getBoundingClientRect().bottom <= innerHeight")
        assert tab.evaluate("document.querySelectorAll('#table .titles th').length") == 4
        assert figures(tab, 0) != figures(tab, 1)
        facts = tab.evaluate("document.getElementById('passes-text').textContent")
        assert facts == (
            "This device has 180 posts, 5 of them labelled by you. "
            "The new backbone has encoded none."
        )

        # The visitor's label of an unseen post is counted, and not learned.
        passed = tab_to(tab, "fine")
        assert "rollback" in passed
        tab.press(" ")
        tab.until("document.querySelector('.said [aria-pressed=true]') !== null")
        assert "of 1);" in tab.evaluate("verdict.textContent")
        right = tab.evaluate("[...document.querySelectorAll('#table tbody tr')[0].cells].slice(1)"
                             ".map(cell => cell.innerText.replaceAll('\\n', ' '))")  # fmt: skip
        assert all(text.startswith("✓ shown") or text.startswith("✕ muted") for text in right)
        assert tab.evaluate("figures.innerText").count(" of 1)") == 3
        check_layout(tab)

        # A text of one's own.
        tab_to(tab, "text")
        tab.send("Input.insertText", text="What a <b>clown</b>.")
        tab.press("Tab")
        tab.press("Enter")
        tab.until("document.getElementById('answers').children.length === 3")

        # The server is killed during the passes.
        tab.evaluate("document.getElementById('stop').focus()")
        tab.evaluate("document.getElementById('refine').focus()")
        tab.press("Enter")
        tab.until("document.getElementById('passes').value >= 10")
        assert tab.evaluate(IDLE) is False
        tab.go(url.partition("#")[0])  # a reload in the middle
        tab.until(f"{STAGE} === 'shipped' && document.getElementById('passes').value >= 10")
        process.kill()
        process.wait()
        gone = tab.until("!gone.hidden && gone.textContent")
        assert "Nothing is lost" in gone
        assert f"--device-dir {tmp_path}" in gone
        ticked = value(tab, "passes")
        quiet(tab, url)

    with served(tmp_path) as (_, again):
        tab.go(again.partition("#")[0] + "#token=of-an-earlier-start")
        assert "earlier start" in tab.until("!gone.hidden && gone.textContent")
        tab.go(again)  # the fragment alone differs
        tab.until(f"{STAGE} === 'shipped' && {IDLE} && gone.hidden")
        assert ticked <= value(tab, "passes") < 60
        assert tab.evaluate("document.querySelectorAll('.said [aria-pressed=true]').length") == 1
        tab_to(tab, "rollback")
        tab.press("Enter")
        tab.until(f"{STAGE} === 'rolled back'")
        assert figures(tab, 3) == figures(tab, 0)
        assert tab.evaluate(FOCUS) == "rollback"

        # Nothing is left after a new start.
        tab.evaluate("text.value = 'A clown.'; ask.requestSubmit()")
        tab.until("answers.children.length === 4")
        tab_to(tab, "again")
        tab.press("Enter")
        tab.until(f"{STAGE} === 'labelling' && answers.children.length === 0")
        assert (value(tab, "text"), value(tab, "labels")) == ("", 0)
        assert tab.evaluate("news.textContent") == ""
        assert tab.evaluate("document.querySelectorAll('[aria-pressed=true]').length") == 0
        quiet(tab, url, again)
    with Device.open(tmp_path / "mine") as device:
        assert device.status().release == "glove"
        assert list(device.examples(labelled=True)) == []
