"""The Trace in a real browser: a timeline, its keys, its table and its file."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from support.site import turn


def window(start: float, run: float = 900.0, wait: float = 0.0, **more) -> list[dict]:
    """Events of one window, as the engine writes them."""
    given = {
        "rows": 4,
        "conversations": 1,
        "drafted": {"head": 3},
        "accepted": 2,
        "tokens": 3,
        "hits": {},
        "misses": {},
        **more,
    }
    place = {"ph": "X", "pid": 1, "tid": 1, "cat": "engine"}
    times = {"draft": 50.0, "run": run, "verify": 30.0, "commit": 20.0}
    found = [{"name": "wait", "ts": start - wait, "dur": wait}] if wait else []
    found.append({"name": "window", "ts": start, "dur": sum(times.values()), "args": given})
    for name, dur in times.items():
        found.append({"name": name, "ts": start, "dur": dur})
        start += dur
    return [one | place for one in found]


READ = [
    {
        "name": "prompt pass",
        "ts": 0.0,
        "dur": 2000.0,
        "ph": "X",
        "args": {"rows": 128, "conversations": 1, "tokens": 1, "accepted": 0},
    },
    {"name": "read", "ts": 0.0, "dur": 2000.0, "ph": "X"},
]
EVENTS = READ + [event for i in range(40) for event in window(2000.0 + 1100 * i, wait=100.0 if i else 0.0)]
EVENTS += window(5_000_000.0, run=1900.0)  # after five seconds in which there was nothing to do


@pytest.fixture
def traced(visit):
    """The view with a trace that is known."""

    def start(events=EVENTS, **context):
        me = visit(**context)
        body = json.dumps({"traceEvents": events})
        me.page.route("**/v1/strata/trace*", lambda route: route.fulfill(body=body, content_type="application/json"))
        me.page.goto(f"{me.url}/#trace")
        me.page.locator(".view-trace .stage").wait_for()
        me.until("document.querySelector('.view-trace canvas').width > 0")
        return me

    return start


def colours(me) -> int:
    """How many different colours are drawn in the rows of the timeline."""
    return me.page.evaluate("""() => {
        const canvas = document.querySelector('.view-trace canvas');
        const data = canvas.getContext('2d').getImageData(0, 30, canvas.width, 160).data;
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
        return seen.size;
    }""")


def details(me) -> str:
    return re.sub(r"\n+", "\n", me.page.get_by_role("region", name="Chosen window").inner_text())


def test_windows_of_a_real_engine_are_drawn(site, visit) -> None:
    me = visit(tab="trace")
    site.say(turn("x" * 40, size=1, delay_ms=5), reading_ms=5)
    site.chat("word " * 200, reasoning_effort="none")
    me.page.locator(".view-trace .stage").wait_for()
    me.page.get_by_role("button", name="Load the last windows").click()
    me.page.get_by_text("windows and passes").wait_for()
    assert colours(me) > 4
    summary = me.page.get_by_role("region", name="Time by phase").inner_text()
    assert "Run" in summary
    assert "Read" in summary


def test_shares_are_those_of_the_events(traced) -> None:
    me = traced()
    assert me.page.locator(".view-trace .tools .detail").inner_text() == "42 windows and passes"
    rows = me.page.get_by_role("region", name="Time by phase").locator("tbody tr")
    table = {cells[0]: cells[1:] for cells in (text.split("\t") for text in rows.all_inner_texts())}
    total = 2000 + 41 * 100 + 39 * 100 + 40 * 900 + 1900  # read; draft, verify and commit; wait; run
    assert table["Run"][:3] == [f"{100 * 37900 / total:.0f}%", "37.9 ms", "41"]
    assert table["Read"][:3] == [f"{100 * 2000 / total:.1f}%", "2.00 ms", "1"]
    assert table["Wait"] == [f"{100 * 3900 / total:.1f}%", "3.90 ms", "39", "100 µs", "100 µs"]
    assert "41 windows with 123 tokens, 3.00 each" in me.page.locator(".view-trace").inner_text()
    assert "67% of 123 guesses right" in me.page.locator(".view-trace").inner_text()


def test_the_keyboard_chooses_moves_and_zooms(traced) -> None:
    me = traced()
    stage = me.page.get_by_role("application", name="Timeline of windows")
    stage.focus()
    keys = me.page.keyboard
    keys.press("Home")
    assert details(me).startswith("Prompt pass 1 2.00 ms\n128 tokens of a prompt read, the first token chosen")
    keys.press("ArrowRight")
    assert details(me).startswith("Window 2 1.00 ms\n4 rows, 3 tokens chosen, 2 of 3 guesses from the draft head right")
    voice = me.page.locator(".view-trace .details [role=status]")
    assert voice.inner_text().startswith("Window 2, 1.00 ms: 4 rows")
    keys.press("End")
    assert details(me).startswith("Window 42 2.00 ms")
    keys.press("ArrowRight")
    assert details(me).startswith("Window 42"), "there is none behind the last"
    shown = me.page.locator(".view-trace .tools .detail")
    for _ in range(4):
        keys.press("+")
    me.until("document.querySelector('.view-trace .tools .detail').textContent.endsWith(' of 42')")
    first = shown.inner_text()
    keys.press("Shift+ArrowLeft")
    me.until(f"document.querySelector('.view-trace .tools .detail').textContent !== '{first}'")
    assert "of " in me.page.get_by_role("region", name="Where the time went").inner_text().split("\n")[0]
    keys.press("0")
    me.until("document.querySelector('.view-trace .tools .detail').textContent === '42 windows and passes'")
    keys.press("Tab")
    assert not stage.evaluate("element => element === document.activeElement"), "the keyboard is not caught"


def test_layers_are_shown_where_they_are_known(traced) -> None:
    times = [10.0, 110.0, 410.0, 610.0, 810.0]
    events = [event for i in range(3) for event in window(1100.0 * i, layers=times)]
    me = traced(events)
    stage = me.page.locator(".view-trace .stage")
    stage.focus()
    me.page.keyboard.press("Home")
    assert "4 layers, the slowest 1 with 300 µs" in details(me)
    layers = me.page.get_by_role("list", name="Time of each layer").locator("li")
    wanted = ["Layer 0: 100 µs", "Layer 1: 300 µs", "Layer 2: 200 µs", "Layer 3: 200 µs"]
    assert layers.locator(".unseen").all_inner_texts() == wanted
    box = stage.bounding_box()
    place = (1100 + 50 + 300) / 3200  # in the second window's second layer
    me.page.mouse.move(box["x"] + box["width"] * place, box["y"] + 110)
    tip = me.page.locator(".view-trace .tip")
    tip.wait_for()
    assert tip.inner_text().endswith("Layer 1: 300 µs")


def test_mouse_and_wheel(traced) -> None:
    me = traced()
    stage = me.page.locator(".view-trace .stage")
    box = stage.bounding_box()
    middle, row = box["x"] + box["width"] / 2, box["y"] + 100
    tip = me.page.locator(".view-trace .tip")
    me.page.mouse.move(middle, row)
    tip.wait_for()
    number = int(tip.inner_text().split()[1].rstrip(":"))
    me.page.mouse.click(middle, row)
    assert details(me).startswith(f"Window {number} ")
    me.page.mouse.wheel(0, -600)
    me.until("document.querySelector('.view-trace .tools .detail').textContent.endsWith(' of 42')")
    tip.wait_for()
    me.page.mouse.move(middle + 1, row)
    assert tip.inner_text().startswith(f"Window {number}:"), "what is below the mouse stays there"
    before = me.page.locator(".view-trace .tools .detail").inner_text()
    me.page.mouse.move(box["x"] + 40, row)
    me.page.mouse.down()
    me.page.mouse.move(box["x"] + box["width"] - 40, row, steps=4)
    me.page.mouse.up()
    me.until(f"document.querySelector('.view-trace .tools .detail').textContent !== '{before}'")
    assert details(me).startswith(f"Window {number} "), "a drag is no click"
    stage.dblclick(position={"x": 30, "y": 60})
    me.until("document.querySelector('.view-trace .tools .detail').textContent === '42 windows and passes'")


def test_two_fingers_zoom(traced) -> None:
    me = traced(viewport={"width": 390, "height": 800}, has_touch=True)
    me.page.evaluate("""() => {
        const stage = document.querySelector('.view-trace .stage');
        const { left, top, width } = stage.getBoundingClientRect();
        stage.setPointerCapture = () => {};
        const send = (name, id, x) => stage.dispatchEvent(new PointerEvent(name, {
            pointerId: id, pointerType: 'touch', clientX: left + x * width, clientY: top + 60, bubbles: true }));
        send('pointerdown', 1, 0.4); send('pointerdown', 2, 0.6);
        for (let i = 1; i < 9; i += 1) {
            send('pointermove', 1, 0.4 - i * 0.04);
            send('pointermove', 2, 0.6 + i * 0.04);
        }
        send('pointerup', 1, 0.1); send('pointerup', 2, 0.9);
    }""")
    me.until("document.querySelector('.view-trace .tools .detail').textContent.endsWith(' of 42')")
    first, last = (
        int(text) for text in me.page.locator(".view-trace .tools .detail").inner_text().split(" of ")[0].split(" to ")
    )
    assert 8 <= last - first <= 16, "a fifth to a third of it, around the middle"
    assert 12 <= (first + last) / 2 <= 28


def test_the_table_says_the_same(traced) -> None:
    me = traced()
    me.page.get_by_text("The same as a table").click()
    rows = me.page.get_by_role("region", name="Windows", exact=True).locator("tbody tr")
    rows.nth(41).wait_for()
    assert rows.count() == 42
    assert rows.nth(0).inner_text().split("\t") == [
        "Window 42", "2.00 ms", "–", "–", "50.0 µs", "1.90 ms", "30.0 µs", "20.0 µs", "4", "1", "3", "3", "2",
    ]  # fmt: skip
    assert rows.nth(41).inner_text().split("\t")[:4] == ["Prompt pass 1", "2.00 ms", "–", "2.00 ms"]


def test_the_file_is_what_the_engine_wrote(traced, tmp_path) -> None:
    me = traced()
    path = me.download(lambda: me.page.get_by_role("button", name="Export").click(), tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == {"traceEvents": EVENTS}
    assert path.name.startswith("strata-trace-")
    assert path.suffix == ".json"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_serious_and_nothing_is_too_wide(traced, scheme, width) -> None:
    me = traced(color_scheme=scheme, viewport={"width": width, "height": 800})
    me.page.get_by_text("The same as a table").click()
    me.page.get_by_text("Window 42").last.wait_for()
    me.page.locator(".view-trace .stage").focus()
    found = Axe().run(me.page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in {"serious", "critical"}] == []
    assert me.page.evaluate("document.querySelector('.view-trace').scrollWidth <= innerWidth")


def test_of_several_models_one_is_chosen(visit) -> None:
    me = visit()
    asked = []

    def answer(route) -> None:
        asked.append(route.request.url.partition("?")[2])
        route.fulfill(json={"traceEvents": EVENTS})

    me.page.route("**/v1/strata/trace*", answer)
    me.page.route("**/v1/models", lambda route: route.fulfill(json={"data": [{"id": "one"}, {"id": "t wo"}]}))
    me.page.goto(f"{me.url}/#trace")
    me.page.locator(".view-trace").get_by_label("Model", exact=True).select_option("t wo")
    while len(asked) < 2:
        me.page.wait_for_timeout(10)
    assert asked == ["windows=256", "windows=256&model=t%20wo"]


def test_without_windows_it_says_so(visit) -> None:
    me = visit()
    me.page.route("**/v1/strata/trace*", lambda route: route.fulfill(json={"traceEvents": []}))
    me.page.goto(f"{me.url}/#trace")
    me.page.get_by_text("The engine has computed nothing yet").wait_for()
    assert me.page.get_by_role("button", name="Export").is_disabled()


def test_while_the_engine_does_not_answer_it_says_what_it_waits_for(visit) -> None:
    me = visit()
    held = []
    me.page.route("**/v1/strata/trace*", lambda route: held.append(route))  # noqa: PLW0108  # playwright marks what it is given
    me.page.goto(f"{me.url}/#trace")
    me.page.get_by_text("It answers between two passes, or once it is loaded.").wait_for()
    (one,) = held
    one.fulfill(json={"traceEvents": EVENTS})
    me.page.get_by_text("42 windows and passes").wait_for()
    assert me.page.locator(".view-trace .notice").is_hidden()


def test_an_error_is_told(visit) -> None:
    me = visit()
    me.allow("503")
    error = {"error": {"message": "the engine is restarting", "type": "overloaded_error"}}
    me.page.route("**/v1/strata/trace*", lambda route: route.fulfill(status=503, json=error))
    me.page.goto(f"{me.url}/#trace")
    me.page.get_by_text("the engine is restarting").wait_for()
