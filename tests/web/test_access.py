"""The page for people who see it differently or not at all: axe's judgement of every view."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from support.site import call

RICH = (
    "Some thought.</think>\n\n# Title\n\nText with `code`, [a link](https://example.org) and **bold**.\n\n"
    "```python\ndef f(x: int) -> str:  # comment\n    return 'text' * 3\n```\n\n"
    "| a | b |\n|---|--:|\n| 1 | 2 |\n\n> quoted\n\n- [x] done\n- [ ] to do\n\n<b>html</b>\n\n"
)


def judge(me, where: str) -> None:
    """Nothing that axe calls serious or critical."""
    results = Axe().run(me.page, options={"resultTypes": ["violations"]})
    bad = [
        (one["id"], one["impact"], [node["html"][:160] for node in one["nodes"]][:3])
        for one in results.response["violations"]
        if one["impact"] in {"serious", "critical"}
    ]
    assert not bad, (where, bad)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_every_view(visit, theme, size) -> None:
    small = {"viewport": {"width": 390, "height": 844}} if size == "phone" else {}
    me = visit(color_scheme=theme, **small)
    judge(me, "an empty chat")
    for tab in ("monitor", "trace", "about"):
        me.open(tab)
        judge(me, tab)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_chat_with_everything(site, visit, theme) -> None:
    site.say(
        RICH + call("get_w", city="Rome"),
        "</think>\n\nAnother.",
        {"pieces": ["</think>", "\n\n", "Half"], "fault": "raise"},
    )
    me = visit(color_scheme=theme)
    me.setting("Tools").fill(
        '{"name": "get_w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}'
    )
    answer = me.ask("hello")
    answer.locator(".thinking summary").click()
    me.page.locator("code.lit").wait_for()
    judge(me, "an answer with a call")
    answer.get_by_role("textbox", name="Result of get_w").fill("sun")
    answer.get_by_role("button", name="Send the result").click()
    me.said("Another.")
    me.done()
    me.setting("Temperature").fill("-1")
    me.ask("and more")
    me.questions.first.get_by_role("button", name="Edit this question").click()
    me.page.get_by_role("button", name="Actions on this chat").click()
    judge(me, "results, a failure, an edit, a menu, a wrong setting")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_question_for_a_key(other_site, visit, theme) -> None:
    me = visit(other_site(keys={"me": "k"}), color_scheme=theme)
    me.allow("status of 401")
    key = me.page.get_by_role("dialog").get_by_label("Key", exact=True)
    key.fill("wrong")
    key.press("Enter")
    me.page.get_by_text("did not accept this key").wait_for()
    judge(me, "the key")


def test_a_screen_reader_hears_what_happens(visit) -> None:
    me = visit()
    me.ask("hello")
    me.until("document.getElementById('announcer').textContent === 'Answer: Fine.'")
    assert me.answers.get_attribute("aria-busy") == "false"
    outline = me.page.locator("body").aria_snapshot()
    for part in (
        'navigation "Views"',
        "main",
        'article "You"',
        'article "Answer"',
        'textbox "Your message"',
        "heading",
    ):
        assert part in outline, part


def test_motion_stops_for_those_who_ask(visit) -> None:
    me = visit(reduced_motion="reduce")
    moving = """() => [...document.querySelectorAll("*")].map((element) => getComputedStyle(element))
      .filter((style) => parseFloat(style.transitionDuration) > 0 || style.animationName !== "none").length"""
    assert me.page.evaluate(moving) == 0
