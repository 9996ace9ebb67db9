"""The Monitor in a real browser: moving numbers, what is shown of what is known, and what it costs."""

import contextlib
import json
import socket
from collections.abc import Iterator
from copy import deepcopy

import pytest
from axe_playwright_python.sync_playwright import Axe

from support.several import several
from support.site import chat_body, turn

SLOW = turn("x" * 3000, size=1, delay_ms=20)
BIG = ".view-monitor .tile:nth-child({}) .big"


@contextlib.contextmanager
def asked(site, content: str = "hi") -> Iterator[None]:
    """A chat under way."""
    with socket.create_connection((site.host, site.port), timeout=30) as link:
        body = json.dumps(chat_body(content, stream=True, max_tokens=2000, reasoning_effort="none")).encode()
        link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
        link.sendall(body)
        yield
    site.script.rest(30)


def fed(me, snapshots: list[dict]) -> None:
    """The page gets these snapshots in place of the server's."""
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in snapshots)
    headers = {"content-type": "text/event-stream"}
    me.page.route("**/v1/strata/events", lambda route: route.fulfill(body=body, headers=headers))


def serious(me) -> list[str]:
    found = Axe().run(me.page).response["violations"]
    return [f"{one['id']}: {one['help']}" for one in found if one["impact"] in {"serious", "critical"}]


@pytest.fixture
def snapshot(site) -> dict:
    """One with something of everything."""
    told = site.get("/v1/strata/status").json
    engine = told["engines"][0]
    engine["speed"] |= {"answer": 43.21, "prompt": 512.0, "answered_tokens": 900, "answering": 20.0}
    engine["drafts"] = {
        "depths": [{"offered": 100 - 10 * i, "accepted": 80 - 12 * i} for i in range(7)],
        "sources": {"head": {"offered": 400, "accepted": 300}},
        "windows": 300,
    }
    engine["experts"] = {"tiers": True, "vram": 900, "ram": 90, "ssd": 10}
    engine["slots"] = {"count": 2870, "held": 2800, "experts": 24576, "bytes": 6_392_064_000}
    engine["memory"] = [{"name": "A GPU", "total": 12_000_000_000, "free": 10**9, "taken": 10**10, "used": 9 * 10**9}]
    engine["cache"] |= {
        "conversations": 70,
        "kept": [
            {"tokens": 500, "in_memory": 500, "on_disk": 0, "shared": 100, "ram_bytes": 10**6, "age": 3.5},
            {"tokens": 90, "in_memory": 0, "on_disk": 90, "shared": 0, "ram_bytes": 0, "age": None},
        ],
        "prompt_tokens": 1000,
        "cached_tokens": 620,
    }
    one = {"model": engine["model"], "dialect": "chat", "answers": 1, "cached": 100, "seconds": 3.0, "first": None}
    told["requests"] = [
        {
            **one,
            "id": "req_aaaaaaaaaaaa",
            "state": "reading",
            "prompt": 1000,
            "read": 400,
            "generated": 0,
            "speed": None,
        },
        {
            **one,
            "id": "req_bbbbbbbbbbbb",
            "state": "answering",
            "prompt": 200,
            "read": 200,
            "generated": 7,
            "speed": 9.5,
        },
    ]
    return dict(told)


def test_numbers_move_while_something_is_answered(site, visit) -> None:
    site.say(SLOW)
    me = visit(tab="monitor")
    row = me.page.get_by_role("region", name="Requests under way").locator("tbody tr")
    me.page.get_by_text("Nothing is under way").wait_for()
    with asked(site):
        row.first.wait_for()
        me.until(f"document.querySelector('{BIG.format(1)}').textContent === '50.0'")
        assert row.locator("td").nth(0).inner_text() == "chat"
        me.until("Number(document.querySelector('.view-monitor tbody td:nth-child(6)').textContent) > 20")
        first = int(row.locator("td").nth(4).inner_text())
        me.until(f"Number(document.querySelector('.view-monitor tbody td:nth-child(6)').textContent) > {first}")
        assert me.page.locator(BIG.format(3)).first.inner_text() == "1"
        me.until("document.querySelector('.view-monitor path.line').getAttribute('d').split('L').length > 4")
    me.page.get_by_text("Nothing is under way").wait_for()
    me.page.get_by_role("region", name="Last requests").get_by_text("Client left").first.wait_for()
    me.until(f"document.querySelector('{BIG.format(3)}').textContent === '0'")


def test_a_prompt_is_seen_to_be_read(site, visit) -> None:
    site.say(turn("x", cached=64), reading_ms=500)
    me = visit(tab="monitor")
    with asked(site, "word " * 1500):
        bar = me.page.get_by_role("progressbar", name="Prompt read").first
        bar.wait_for()
        me.until("Number(document.querySelector('.view-monitor [role=progressbar]').ariaValueNow) > 300")
        assert int(bar.get_attribute("aria-valuemax")) > 1500
        assert "64 of them known before" in bar.get_attribute("aria-valuetext")
        me.until(f"Number(document.querySelector('{BIG.format(2)}').textContent) > 100")


def test_everything_that_is_known_is_shown(visit, snapshot) -> None:
    me = visit(tab="chat")
    fed(me, [snapshot])
    me.page.goto(f"{me.url}/#monitor")
    view = me.page.locator(".view-monitor")
    view.get_by_text("43.2", exact=True).wait_for()
    text = view.inner_text()
    for words in (
        "62%",
        "620 of 1,000",
        "in memory",
        "in files",
        "The 2 used last of 70",
        "before start",
        "10.0 GB of 12.0 GB",
        "6.39 GB: 2,870 of 24,576 experts, 2,800 there",
    ):
        assert words in text, words
    places = view.locator(".depths li")
    assert [one.split()[0] for one in places.locator(".share").all_inner_texts()][:3] == ["80%", "76%", "70%"]
    assert places.locator(".offered").all_inner_texts()[:3] == ["100", "90", "80"]
    assert "75% of 400" in text
    assert view.get_by_role("region", name="Experts by tier").inner_text().split("\n")[-6:] == [
        "GPU memory", "90% 900", "Main memory", "9.0% 90", "File", "1.0% 10",
    ]  # fmt: skip
    rows = view.get_by_role("region", name="Requests under way").locator("tbody tr")
    assert rows.nth(0).inner_text().replace("\n", "").split("\t")[:4] == ["aaaaaaaa", "chat", "Reading", "400 of 1,000"]
    assert rows.nth(1).inner_text().split("\t")[-4:] == ["7", "9.50", "–", "3.00 s"]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_serious_and_nothing_is_too_wide(visit, snapshot, scheme, width) -> None:
    me = visit(color_scheme=scheme, viewport={"width": width, "height": 800})
    fed(me, [snapshot])
    me.page.goto(f"{me.url}/#monitor")
    me.page.locator(".view-monitor").get_by_text("43.2", exact=True).wait_for()
    assert serious(me) == []
    assert me.page.evaluate("document.querySelector('.view-monitor').scrollWidth <= innerWidth")


def test_of_several_models_one_is_chosen(visit, snapshot) -> None:
    other = deepcopy(snapshot["engines"][0]) | {"model": "another"}
    other["speed"]["answer"] = 7.77
    snapshot["engines"].append(other)
    snapshot["requests"][1]["model"] = "another"
    me = visit(tab="chat")
    fed(me, [snapshot])
    me.page.goto(f"{me.url}/#monitor")
    view = me.page.locator(".view-monitor")
    view.get_by_text("43.2", exact=True).wait_for()
    rows = view.get_by_role("region", name="Requests under way").locator("tbody tr th")
    assert rows.all_inner_texts() == ["aaaaaaaa"]
    view.get_by_label("Model", exact=True).select_option("another")
    view.get_by_text("7.77", exact=True).wait_for()
    assert rows.all_inner_texts() == ["bbbbbbbb"]


def test_a_model_is_unloaded_and_loaded_by_hand(visit, tmp_path) -> None:
    site = several(tmp_path, "a", "b", models={"a": {"early": True}})
    try:
        me = visit(site, tab="monitor")
        me.page.get_by_role("button", name="Unload").click()
        me.page.get_by_role("button", name="Load", exact=True).wait_for()
        assert site.states() == {"a": "unloaded", "b": "unloaded"}
        me.page.locator(".view-monitor").get_by_label("Model", exact=True).select_option("b")
        me.page.get_by_role("button", name="Load", exact=True).click()
        me.page.get_by_role("button", name="Unload").wait_for()
        assert site.states() == {"a": "unloaded", "b": "loaded"}
    finally:
        site.close()


def test_nothing_jumps_when_requests_come_and_go(visit, snapshot) -> None:
    without = {**snapshot, "requests": [], "time": snapshot["time"] + 1}
    tall = deepcopy(snapshot)
    me = visit(tab="chat")
    fed(me, [tall])
    me.page.goto(f"{me.url}/#monitor")
    me.page.locator(".view-monitor").get_by_text("aaaaaaaa").wait_for()
    place = "document.querySelector('.view-monitor .pair').getBoundingClientRect().top"
    before = me.page.evaluate(place)
    me.page.unroute("**/v1/strata/events")
    fed(me, [without])
    me.page.get_by_text("Nothing is under way").wait_for()
    assert me.page.evaluate(place) == before


def test_nothing_is_asked_for_while_nobody_looks(site, visit) -> None:
    me = visit(tab="monitor")
    listeners = site.desk.monitor.listeners
    me.page.get_by_text("Live", exact=True).wait_for()
    assert len(listeners) == 1
    me.page.get_by_role("button", name="Pause").click()
    me.page.get_by_text("Paused").wait_for()
    while len(listeners):
        me.page.wait_for_timeout(20)
    me.page.get_by_role("button", name="Go on").click()
    me.page.get_by_text("Live", exact=True).wait_for()
    me.page.goto(f"{me.url}/#about")
    me.page.locator(".view-about").wait_for()
    while len(listeners):
        me.page.wait_for_timeout(20)
    me.page.goto(f"{me.url}/#monitor")
    me.page.get_by_text("Live", exact=True).wait_for()
    assert len(listeners) == 1


def test_a_chart_is_read_with_the_keyboard(visit, snapshot) -> None:
    later = deepcopy(snapshot)
    later["time"] += 10
    later["engines"][0]["speed"]["answer"] = 20.0
    me = visit(tab="chat")
    fed(me, [snapshot, later])
    me.page.goto(f"{me.url}/#monitor")
    plot = me.page.get_by_role("img", name="Answers in the last minute: 20.0 tokens/s, at most 43.2")
    plot.focus()
    me.page.keyboard.press("End")
    me.page.keyboard.press("ArrowLeft")
    said = me.page.locator(".view-monitor .tile:nth-child(1) .unseen[role=status]")
    assert said.inner_text() == "43.2 tokens/s, 10 s ago"
    me.page.keyboard.press("ArrowRight")
    assert said.inner_text() == "20.0 tokens/s"


def test_a_key_that_is_missing_is_asked_for(other_site, visit) -> None:
    locked = other_site(keys={"one": "k"})
    me = visit(locked, tab="monitor")
    me.allow("401")
    me.page.get_by_role("dialog").wait_for()
    me.page.get_by_role("dialog").get_by_role("textbox").fill("k")
    me.page.keyboard.press("Enter")
    me.page.get_by_text("Live", exact=True).wait_for()
