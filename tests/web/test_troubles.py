"""What the page says and does when something is wrong."""

import json

from strata.loading.files import ModelFile
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import Client, ScriptedEngine
from support.site import Site, turn

DIRECT = "</think>\n\n"
REFUSED = "Failed to load resource: .* status of (401|413|429|500|503)"
GONE = "Failed to load resource: net::ERR_"


def test_a_key_is_asked_for_and_kept_for_this_tab_alone(other_site, visit) -> None:
    locked = other_site(keys={"me": "s3cret-key"})
    me = visit(locked)
    me.allow(REFUSED)
    dialog = me.page.get_by_role("dialog", name="This server needs a key")
    dialog.wait_for()
    key = dialog.get_by_label("Key", exact=True)
    assert key.get_attribute("type") == "password"
    key.fill("wrong")
    key.press("Enter")
    dialog.get_by_text("did not accept this key").wait_for()
    dialog.get_by_label("Key", exact=True).fill("s3cret-key")
    dialog.get_by_role("button", name="Use this key").click()
    me.page.locator(".state .name").get_by_text("scripted").wait_for()
    me.ask("hello")
    assert me.page.evaluate("sessionStorage['strata.key']") == "s3cret-key"
    everywhere = """async () => {
      const found = [JSON.stringify({ ...localStorage }), document.cookie, location.href];
      const result = (request) => new Promise((done) => { request.onsuccess = () => done(request.result); });
      for (const { name } of await indexedDB.databases()) {
        const database = await result(indexedDB.open(name));
        for (const store of database.objectStoreNames) {
          found.push(JSON.stringify(await result(database.transaction(store).objectStore(store).getAll())));
        }
        database.close();
      }
      return found.join();
    }"""
    assert "s3cret-key" not in me.page.evaluate(everywhere)
    assert not [url for url in me.asked if "s3cret" in url]
    me.reload()
    me.ask("again")  # without being asked again
    me.page.get_by_role("link", name="About").click()
    me.page.get_by_text("This server demands a key").wait_for()
    assert "s3cret-key" not in me.page.locator(".view-about").inner_text()
    assert "YOUR_KEY" in me.page.get_by_role("tabpanel").first.inner_text()
    me.page.get_by_role("button", name="Forget the key").click()
    assert me.page.evaluate("sessionStorage['strata.key']") is None


def test_without_a_key_the_question_waits_to_be_sent(other_site, visit) -> None:
    locked = other_site(keys={"me": "k"})
    me = visit(locked)
    me.allow(REFUSED)
    dialog = me.page.get_by_role("dialog", name="This server needs a key")
    dialog.get_by_role("button", name="Not now").click()
    answer = me.ask("hello", wait=False)
    dialog.get_by_role("button", name="Not now").click()
    answer.get_by_text("A key is needed").wait_for()
    answer.get_by_role("button", name="Enter a key").click()
    dialog.get_by_label("Key", exact=True).fill("k")
    dialog.get_by_role("button", name="Use this key").click()
    me.said("Fine.")
    me.done()
    me.page.locator(".state .name").get_by_text("scripted").wait_for()  # asked for again, now that it may
    assert not dialog.is_visible()


def test_a_full_queue_is_waited_for(visit) -> None:
    me = visit()
    me.allow(REFUSED)
    full = json.dumps({"error": {"message": "the queue is full", "type": "rate_limit_error", "code": "queue_full"}})
    left = [2]

    def answer(route) -> None:
        left[0] -= 1
        if left[0] < 0:
            route.continue_()
        else:
            route.fulfill(status=429, headers={"retry-after": "1", "content-type": "application/json"}, body=full)

    me.page.route("**/v1/chat/completions", answer)
    me.ask("hello", wait=False).get_by_text("The server's queue is full").wait_for()
    me.said("Fine.")
    assert me.answers.count() == 1


REFUSALS = (
    (413, None, "larger than the server takes"),
    (400, "context_length_exceeded", "no longer fits"),
    (503, "out_of_memory", "ran out of memory"),
    (500, None, "met a fault"),
)


def test_refusals_say_what_to_do(visit) -> None:
    me = visit()
    me.allow(REFUSED, "status of 400")
    now: list[tuple[int, str | None]] = [(0, None)]

    def answer(route) -> None:
        status, code = now[0]
        error = {"message": "<b>the server's words</b>", "type": "x", "code": code}
        route.fulfill(status=status, json={"error": error})

    me.page.route("**/v1/chat/completions", answer)
    for status, code, title in REFUSALS:
        now[0] = (status, code)
        notice = me.ask("hello").locator(".notice")
        assert title in notice.inner_text()
        assert "<b>the server's words</b>" in notice.inner_text()
    me.page.unroute("**/v1/chat/completions")
    me.answers.last.get_by_role("button", name="Try again").click()
    me.said("Fine.")
    assert me.answers.last.locator(".branches").count() == 0  # an answer that came to nothing is no version


STATES = (
    ({"status": "loading", "state": "loading", "loaded": 0.43}, "The model is being loaded (43%)", "Loading 43%"),
    ({"status": "loading", "state": "restarting"}, "is being started again", "Restarting"),
    ({"status": "error", "state": "failed", "reason": "no such file"}, "no such file", "The engine does not run"),
    ({"status": "error", "reason": {"a": "gone", "b": "full"}}, "a: gone; b: full", "The engine does not run"),
    ({"status": "ending"}, "The server is ending.", "The server is ending"),
    ("<html>", "The server does not answer.", "The server does not answer"),
)


def test_the_server_s_state_is_said(site, visit) -> None:
    me = visit(tab="about")
    me.allow(REFUSED)
    now: list[object] = [None]
    me.page.route("**/health", lambda route: route.fulfill(status=503, body=json.dumps(now[0])))
    banner = me.page.locator(".banner")
    for told, words, sign in STATES:
        now[0] = told
        me.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        banner.get_by_text(words).wait_for()
        assert sign in me.page.locator(".state").inner_text()
    me.page.unroute("**/health")
    banner.wait_for(state="hidden")
    assert site.served.name in me.page.locator(".state").inner_text()


def test_a_fault_in_the_middle_keeps_what_had_come(site, visit) -> None:
    site.say(turn(DIRECT + "Half an answ", fault="raise"), DIRECT + "A whole one.")
    me = visit()
    answer = me.ask()
    assert answer.locator(".prose").inner_text() == "Half an answ"
    answer.get_by_role("button", name="Try again").click()
    me.said("A whole one.")


def test_the_engine_dies_and_comes_back(tmp_path, visit) -> None:
    script = tmp_path / "s.json"
    turns = [turn(DIRECT + "Half", fault="die"), turn(DIRECT + "Whole.")]
    script.write_text(json.dumps({"turns": turns}), encoding="utf-8")
    with Client(ScriptedEngine(str(script))) as client:
        site = Site(client, None, Options(port=0, drain=0.1), Served(client, ModelFile.open(None), "mortal"))  # type: ignore[arg-type]
        try:
            me = visit(site)
            me.allow("status of 503")
            answer = me.ask()
            assert "engine ended in the middle" in answer.locator(".notice").inner_text()
            assert answer.locator(".prose").inner_text() == "Half"
            answer.get_by_role("button", name="Try again").click()
            me.said("Whole.")  # sent when the new engine was there
            me.done()
            me.page.context.close()
        finally:
            site.close()


def test_the_server_goes_and_comes_back(scripted, other_site, visit) -> None:
    first = other_site()
    scripted.say(DIRECT + "One.", DIRECT + "Two.")
    me = visit(first)
    me.allow(GONE, "status of 503")
    me.ask("before")
    port = first.port
    first.close()
    answer = me.ask("after", wait=False)
    answer.get_by_text("The server does not answer. The question is sent when it is back").wait_for()
    me.page.locator(".banner").get_by_text("The server does not answer.").wait_for()
    again = Site(scripted.client, scripted.script, Options(port=port, drain=0.2), scripted.served)
    try:
        me.said("Two.")
        me.page.locator(".banner").wait_for(state="hidden")
        assert me.questions.count() == 2
        me.page.context.close()
    finally:
        again.close()


def test_a_full_storage_loses_nothing_in_silence(visit) -> None:
    me = visit()
    me.page.evaluate("""() => {
      const put = IDBObjectStore.prototype.put;
      globalThis.full = true;
      IDBObjectStore.prototype.put = function (...given) {
        if (globalThis.full) throw new DOMException("no room", "QuotaExceededError");
        return put.apply(this, given);
      };
    }""")
    me.ask("Question 1")
    me.page.get_by_text("The browser's storage is full.").wait_for()
    me.page.get_by_role("button", name="New chat").first.click()
    me.page.locator(".chat-item").click()
    me.said("Fine.")  # kept in memory
    me.page.evaluate("() => { globalThis.full = false }")
    me.ask("Question 2")
    me.page.get_by_text("The browser's storage is full.").wait_for(state="detached")
    me.reload()
    assert me.questions.count() == 2  # what could not be written then was written now


def two_tabs(visit):
    """Two tabs of one browser."""
    me = visit()
    other = type(me)(me.context, me.url)
    return me, other


def test_a_chat_deleted_in_another_tab_comes_back_whole(site, visit) -> None:
    site.say("</think>\n\none", "</think>\n\ntwo")
    me, other = two_tabs(visit)
    me.ask("first")
    other.open()
    other.page.get_by_role("navigation", name="Chats").get_by_text("first").click()
    other.said("one")
    other.menu("Delete")
    me.page.get_by_text("This chat was deleted in another tab.").wait_for()
    me.ask("important question")
    me.said("two")
    me.reload()
    me.said("one")
    me.said("two")
    assert me.questions.count() == 2
    other.check()


def test_an_answer_that_another_tab_writes_is_said_to_be(site, visit) -> None:
    site.say(turn("</think>\n\n" + "word " * 120, size=5, delay_ms=60))
    me, other = two_tabs(visit)
    me.ask("first", wait=False)
    me.page.locator(".answer .prose").get_by_text("word").first.wait_for()
    other.open()
    other.page.get_by_role("navigation", name="Chats").get_by_text("first").click()
    other.page.get_by_text("This answer is being written in another tab.").wait_for()
    assert not other.page.get_by_role("button", name="Continue").is_visible()
    me.done()
    other.page.get_by_text("This answer is being written in another tab.").wait_for(state="detached")
    end = ("word " * 120).strip()
    for one in (me, other):
        assert one.answers.last.locator(".prose").inner_text().strip() == end
    other.check()


def test_a_key_may_have_any_letters(other_site, visit) -> None:
    for key in ("schlüssel", "ключ"):
        me = visit(other_site(keys={"me": key}))
        me.allow("status of 401")
        me.page.get_by_role("dialog").get_by_label("Key", exact=True).fill(key)
        me.page.keyboard.press("Enter")
        me.ask("hi")
        me.said("Fine.")


def test_a_browser_that_keeps_nothing_still_chats(visit) -> None:
    me = visit(tab="about")
    me.context.add_init_script("""
      for (const name of ["indexedDB", "localStorage", "sessionStorage"]) {
        Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
      }
    """)
    me.page.reload()
    me.open()
    me.page.get_by_text("The browser keeps nothing here.").wait_for()
    me.ask("hello")
    assert me.answers.locator(".prose").inner_text() == "Fine."
    me.page.get_by_role("button", name="Theme: as the system").click()


def test_a_view_that_cannot_be_loaded_says_so(visit) -> None:
    me = visit()
    me.allow(GONE, "error: TypeError: Failed to fetch dynamically imported module")
    me.page.route("**/tabs/about.js", lambda route: route.abort())
    me.page.get_by_role("link", name="About").click()
    me.page.get_by_text("This view could not be loaded.").wait_for()
    me.page.get_by_role("link", name="Chat", exact=True).click()
    me.ask("still there")
