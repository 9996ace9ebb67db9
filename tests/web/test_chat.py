"""The chat in a real browser, before a server with a scripted engine."""

import json
import re

from support.site import call, turn

LONG = "word " * 400
DIRECT = "</think>\n\n"  # the script's answers begin inside the thoughts


def test_an_answer_is_shown_as_it_comes_and_complete_parts_stay_as_they_are(site, visit) -> None:
    text = "First **part**.\n\n- one\n- two\n\n```python\nx = 1\n```\n\n" + "Last words come here. " * 1000
    site.say(turn(DIRECT + text, size=6, delay_ms=15))  # a minute; it is stopped when enough has been seen
    me = visit()
    answer = me.ask("Go", wait=False)
    first = answer.locator(".prose > p").first
    first.evaluate("element => { element.kept = 'yes' }")
    answer.locator(".prose > p").nth(1).get_by_text("Last words").wait_for()
    assert answer.get_attribute("aria-busy") == "true"
    me.page.get_by_role("button", name="Stop the answer").click()
    me.done()
    assert first.evaluate("element => element.kept") == "yes"  # the same element, not one made anew
    assert answer.locator(".prose strong").inner_text() == "part"
    assert answer.locator(".prose li").all_inner_texts() == ["one", "two"]
    assert answer.locator("pre code").inner_text().strip() == "x = 1"
    assert me.bodies[-1]["messages"] == [{"role": "user", "content": "Go"}]


def test_an_answer_has_its_numbers(site, visit) -> None:
    site.say(turn(DIRECT + "ten times " * 10, size=10, cached=3))
    me = visit()
    figures = me.ask("Go").locator(".figures")
    assert re.fullmatch(r"1\d tokens · [\d,.]+ per second", figures.inner_text())
    assert "3 of them known already" in figures.get_attribute("title")
    assert re.fullmatch(r"[\d,]+ of 32,768 tokens", me.page.locator(".composer .note").inner_text())


def test_reading_on_above_is_not_disturbed(site, visit) -> None:
    site.say(DIRECT + "\n\n".join(f"Paragraph {n}" for n in range(60)), turn(DIRECT + LONG, size=20, delay_ms=10))
    me = visit()
    me.ask()
    scroller = me.page.locator(".scroller")
    near = "e => e.scrollHeight - e.scrollTop - e.clientHeight < 5"
    assert scroller.evaluate(near)
    button = me.questions.first.locator(".foot button").first
    button.evaluate("element => { element.kept = 'yes' }")
    me.ask("More", wait=False)
    scroller.evaluate("e => { e.scrollTop = 200 }")
    jump = me.page.get_by_role("button", name="To the newest message")
    jump.wait_for()
    me.done()
    assert scroller.evaluate("e => e.scrollTop") == 200
    assert button.evaluate("element => element.kept") == "yes"  # messages that are not new are not made anew
    jump.click()
    assert scroller.evaluate(near)


def test_stop_keeps_what_is_there_and_ends_the_work(site, visit) -> None:
    site.say(turn(DIRECT + LONG * 10, size=5, delay_ms=20), DIRECT + "and more.")
    me = visit()
    answer = me.ask(wait=False)
    answer.locator(".prose p").wait_for()
    me.page.get_by_role("button", name="Stop the answer").click()
    me.done()
    assert answer.get_by_text("Stopped.").is_visible()
    said = answer.locator(".prose").inner_text()
    assert said.startswith("word")
    assert len(said) < len(LONG) * 5
    site.script.rest(10)
    answer.get_by_role("button", name="Continue").click()
    me.done()
    assert me.answers.count() == 1
    assert answer.locator(".prose").inner_text().endswith("and more.")
    assert me.bodies[-1]["messages"][-1]["role"] == "assistant"


def test_escape_stops(site, visit) -> None:
    site.say(turn(DIRECT + LONG * 10, size=5, delay_ms=20))
    me = visit()
    answer = me.ask(wait=False)
    answer.locator(".prose p").wait_for()
    me.page.keyboard.press("Escape")
    me.done()
    assert answer.get_by_text("Stopped.").is_visible()


def test_an_edited_question_and_another_answer_stand_beside_the_old_ones(site, visit) -> None:
    site.say(*(DIRECT + text for text in ("Answer A.", "Answer B.", "Answer C.", "Answer D.")))
    me = visit()
    me.ask("Question 1")
    me.ask("Question 2")
    me.questions.nth(0).get_by_role("button", name="Edit this question").click()
    area = me.page.get_by_role("textbox", name="Edit your question")
    assert area.input_value() == "Question 1"
    area.fill("Question 1, better")
    me.page.locator(".edit").get_by_role("button", name="Send").click()
    me.done()
    assert me.questions.all_inner_texts()[0].startswith("Question 1, better")
    assert me.questions.count() == 1  # what was below the old one is with the old one
    assert me.bodies[-1]["messages"] == [{"role": "user", "content": "Question 1, better"}]
    me.answers.nth(0).get_by_role("button", name="Answer again").click()
    me.done()
    assert me.answers.nth(0).locator(".prose").inner_text() == "Answer D."
    versions = me.answers.nth(0).get_by_role("group", name="Versions")
    assert versions.inner_text() == "2 / 2"
    versions.get_by_role("button", name="Version before").click()
    assert me.answers.nth(0).locator(".prose").inner_text() == "Answer C."
    me.questions.nth(0).get_by_role("button", name="Version before").click()
    assert me.questions.count() == 2
    assert [one.strip() for one in me.page.locator(".answer .prose").all_inner_texts()] == ["Answer A.", "Answer B."]
    me.reload()
    assert me.questions.count() == 2  # which version is shown is kept as well


def test_thoughts_are_folded(site, visit) -> None:
    site.say("I think of **this**." + "\n\nAnd more." * 50 + "</think>\n\nHere it is.")
    me = visit()
    answer = me.ask()
    summary = answer.get_by_text("Thought for a moment")
    thought = answer.get_by_text("I think of this.")
    assert summary.is_visible()
    assert not thought.is_visible()
    at = summary.bounding_box()
    summary.click()
    thought.wait_for()
    assert summary.bounding_box()["y"] == at["y"]  # long as the thought is, it stays under the pointer
    assert answer.locator(".prose:not(.thought)").inner_text() == "Here it is."
    me.ask("Next")
    assert me.bodies[-1]["messages"][1]["reasoning_content"].startswith("I think of **this**.")


def test_a_tool_is_called_and_answered(site, visit) -> None:
    site.say(f"{DIRECT}Wait.\n\n{call('get_w', city='Rome')}", DIRECT + "Sunny in Rome.")
    me = visit()
    tools = me.setting("Tools")
    tools.fill("not JSON")
    assert me.page.get_by_text("This is not JSON yet").is_visible()
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools.fill(json.dumps([{"name": "get_w", "description": "weather", "input_schema": schema}]))
    assert me.page.get_by_role("button", name="1 tool").is_visible()
    answer = me.ask("Weather?")
    given = me.bodies[-1]["tools"]
    assert given == [
        {"type": "function", "function": {"name": "get_w", "description": "weather", "parameters": schema}}
    ]
    block = answer.locator(".call")
    assert "Called get_w" in block.inner_text()
    assert block.locator("dt, dd").all_inner_texts() == ["city", "Rome"]
    answer.get_by_role("textbox", name="Result of get_w").fill('{"sky": "clear"}')
    answer.get_by_role("button", name="Send the result").click()
    me.said("Sunny in Rome.")
    me.done()
    asked, answered = me.bodies[-1]["messages"][1:]
    assert asked["tool_calls"][0]["function"] == {"name": "get_w", "arguments": '{"city": "Rome"}'}
    assert answered == {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": '{"sky": "clear"}'}
    assert "clear" in me.page.locator(".result").inner_text()
    assert answer.locator(".results").count() == 0


def test_arguments_are_shown_while_they_are_written(site, visit) -> None:
    text = "line of a file, " * 1000
    site.say(turn(f"{DIRECT}{call('write', path='a.txt', content=text)}", size=8, delay_ms=15), DIRECT + "Well.")
    me = visit()
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
    me.setting("Tools").fill(json.dumps({"name": "write", "parameters": schema}))
    answer = me.ask("Write", wait=False)
    block = answer.locator(".call.active")
    block.get_by_text("line of a file").wait_for()
    block.locator("summary").click()  # folded while it is written: it stays so
    me.page.keyboard.press("Escape")
    me.done()
    assert answer.locator(".call").get_attribute("open") is None
    answer.locator(".call summary").click()
    assert answer.locator(".call code").inner_text().startswith('{"path": "a.txt", "content": "line of a file, line')
    me.ask("And now?")
    assert "tool_calls" not in me.bodies[-1]["messages"][1:][0]  # what is no whole call is not said to have been one


def test_one_of_several_models_is_chosen(visit) -> None:
    models = json.dumps({"data": [{"id": "scripted"}, {"id": "other"}]})
    me = visit(tab="about")
    me.page.route("**/v1/models", lambda route: route.fulfill(body=models, content_type="application/json"))
    me.page.reload()
    me.open()
    choice = me.page.get_by_role("combobox", name="Model")
    choice.select_option("other")
    me.ask()
    assert me.bodies[-1]["model"] == "other"
    assert any(url.endswith("/props?model=other") for url in me.asked)
    me.page.get_by_role("button", name="New chat").first.click()
    choice.select_option("scripted")
    me.ask()
    assert me.bodies[-1]["model"] == "scripted"
    me.page.locator(".chat-item").nth(1).click()
    me.until("document.querySelector('select[aria-label=Model]').value === 'other'")
    me.reload()
    me.until("document.querySelector('select[aria-label=Model]').value === 'other'")


def test_settings_are_sent_and_kept(visit) -> None:
    me = visit()
    me.setting("System prompt").fill("Be brief.")
    me.setting("Temperature").fill("0.5")
    me.setting("Longest answer").fill("40")
    me.setting("Top k").fill("-3")
    assert me.setting("Top k").get_attribute("aria-invalid") == "true"
    me.page.get_by_role("combobox", name="Thinking").select_option("high")
    me.ask()
    body = me.bodies[-1]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["temperature"], body["max_tokens"], body["reasoning_effort"]) == (0.5, 40, "high")
    assert "top_k" not in body
    me.reload()
    assert me.setting("Temperature").input_value() == "0.5"
    me.page.get_by_role("button", name="Reset all settings").click()
    me.ask()
    assert {"temperature", "max_tokens", "reasoning_effort"}.isdisjoint(me.bodies[-1])


def test_several_chats_survive_a_reload(site, visit) -> None:
    site.say(DIRECT + "About rocks.", DIRECT + "About rivers.")
    me = visit()
    me.ask("Rocks")
    me.page.get_by_role("button", name="New chat").first.click()
    me.ask("Rivers")
    me.box.fill("a draft")
    me.reload()
    listed = me.page.locator(".chat-item")
    assert listed.all_inner_texts() == ["Rivers", "Rocks"]
    assert me.page.locator(".answer .prose").inner_text() == "About rivers."
    assert me.box.input_value() == "a draft"
    listed.nth(1).click()
    me.said("About rocks.")
    assert me.box.input_value() == ""
    other = me.context.new_page()  # another tab of the same browser
    other.goto(me.url)
    other.locator(".chat-item").nth(1).wait_for()
    me.menu("Rename")
    me.page.get_by_role("textbox", name="Title of this chat").fill("Stones")
    me.page.keyboard.press("Enter")
    other.get_by_role("button", name="Stones").wait_for()
    other.close()
    me.menu("Delete")
    me.until("document.querySelectorAll('.chat-item').length === 1")
    me.page.get_by_role("button", name="Undo").click()
    me.said("About rocks.")
    assert listed.count() == 2


def test_an_answer_goes_on_while_another_chat_is_shown(site, visit) -> None:
    site.say(turn(DIRECT + "slow " * 60 + "end.", size=5, delay_ms=15))
    me = visit()
    me.ask("One", wait=False).locator(".prose p").wait_for()
    me.page.get_by_role("button", name="New chat").first.click()
    assert me.answers.count() == 0
    me.page.locator(".chat-item .busy").wait_for(state="detached")
    me.page.locator(".chat-item").click()
    assert me.answers.locator(".prose").inner_text().endswith("end.")


def test_chats_are_exported_and_come_back(site, visit, tmp_path) -> None:
    site.say(f"hm</think>\n\nSee ```code``` here.\n\n{call('now')}", DIRECT + "Noon it is.")
    me = visit()
    me.setting("Tools").fill('{"name": "now"}')
    me.ask("What time?").get_by_role("textbox", name="Result of now").fill("12:00")
    me.page.get_by_role("button", name="Send the result").click()
    me.said("Noon it is.")
    me.done()
    text = me.download(lambda: me.menu("Export as Markdown"), tmp_path).read_text(encoding="utf-8")
    for part in ("# What time?", "## You", "Thoughts", "See ```code``` here.", "Called `now`", "12:00", "Noon it is."):
        assert part in text
    path = me.download(lambda: me.menu("Export as JSON"), tmp_path)
    value = json.loads(path.read_text(encoding="utf-8"))
    assert (value["format"], len(value["chats"][0]["messages"])) == ("strata-chats", 4)
    shown = me.page.locator(".messages").inner_text()
    me.page.locator(".sidebar input[type=file]").set_input_files(path)
    me.page.get_by_text("Imported 1 chat.").wait_for()
    assert me.page.locator(".chat-item").count() == 2  # beside the first, which stays as it was
    assert me.page.locator(".messages").inner_text() == shown
    everything = me.download(lambda: me.page.get_by_role("button", name="Export all").click(), tmp_path)
    assert len(json.loads(everything.read_text(encoding="utf-8"))["chats"]) == 2


def test_what_is_imported_is_checked(visit, tmp_path) -> None:
    me = visit()
    chooser = me.page.locator(".sidebar input[type=file]")
    ring = {"format": "strata-chats", "version": 1, "chats": [{"chat": {"title": 7}, "messages": [
        {"id": "a", "parent": "b", "role": "user", "content": "x"}, {"id": "b", "parent": "a", "role": "assistant"},
        {"role": "robot"}, None, {"id": "c", "parent": None, "role": "user", "content": {"no": "text"}}]}]}  # fmt: skip
    plain = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U?"},
        {"role": "assistant", "content": "A!"},
    ]
    cases = (
        ("{", "The file is not JSON"),
        ('{"a": 1}', "holds no chats"),
        ('{"format": "strata-chats", "version": 9}', "version 9"),
        ("[]", "holds no messages"),
        (json.dumps(ring), "Imported 1 chat."),
        (json.dumps({"messages": plain}), "Imported 1 chat."),
    )
    for number, (text, said) in enumerate(cases):
        file = tmp_path / f"{number}.json"
        file.write_text(text, encoding="utf-8")
        chooser.set_input_files(file)
        me.page.locator(".toast").last.get_by_text(said).wait_for()
    assert me.page.locator(".answer .prose").inner_text() == "A!"
    assert me.setting("System prompt").input_value() == "S"


def test_everything_can_be_done_with_the_keyboard(site, visit) -> None:
    site.say(DIRECT + "One.", DIRECT + "Two.", DIRECT + "Three.")
    me = visit()
    keys = me.page.keyboard
    focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    assert me.page.evaluate(focused) == "Your message"
    keys.type("first")
    keys.press("Shift+Enter")
    keys.type("second line")
    keys.press("Enter")
    me.said("One.")
    me.done()
    assert me.bodies[-1]["messages"][0]["content"] == "first\nsecond line"
    assert me.page.evaluate(focused) == "Your message"
    keys.press("ArrowUp")  # in an empty message: the last question
    assert me.page.evaluate(focused) == "Edit your question"
    keys.type("!")
    keys.press("Control+Enter")
    me.said("Two.")
    me.done()

    def tab_to(name: str) -> None:
        seen = []
        for _ in range(60):
            keys.press("Tab")
            seen.append(me.page.evaluate(focused))
            if seen[-1] == name:
                ring = me.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert ring != "none", name
                return
        raise AssertionError(f"{name} is not among {seen}")

    tab_to("Answer again")
    keys.press("Enter")
    me.said("Three.")
    me.done()
    tab_to("Version before")
    keys.press("Space")
    me.said("Two.")
    assert me.page.evaluate(focused) in {"Version before", "Next version"}
    tab_to("Actions on this chat")
    keys.press("Enter")
    me.page.get_by_role("menuitem", name="Rename").wait_for()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    assert me.page.evaluate(focused) == "Export as JSON"
    keys.press("Escape")
    assert me.page.evaluate(focused) == "Actions on this chat"
    tab_to("Settings of this chat")
    keys.press("Enter")
    assert me.page.locator(".panel").is_visible()
    tab_to("About")
    keys.press("Enter")
    me.page.get_by_role("tab", name="curl").wait_for()
    tab_to("curl")
    keys.press("ArrowRight")
    assert me.page.get_by_role("tabpanel").get_by_text("from openai import OpenAI").is_visible()


def test_long_questions_are_shown_in_part_and_files_become_part_of_them(visit) -> None:
    me = visit()
    drop = """([name, bytes]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(bytes)], name));
      const event = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
      document.querySelector(".composer").dispatchEvent(event);
    }"""
    me.box.fill("Look:")
    text = "".join(f"line {n} with ``` in it\n" for n in range(60))
    me.page.evaluate(drop, ["notes.md", list(text.encode())])
    me.until("document.querySelector('.composer textarea').value.length > 500")
    me.page.evaluate(drop, ["picture.png", [0x89, 0x50, 0, 1]])
    me.page.get_by_text("picture.png is not a text file.").wait_for()
    me.box.press("Enter")
    me.said("Fine.")
    assert me.bodies[-1]["messages"][0]["content"].startswith("Look:\n\n````notes.md\nline 0 with ``` in it\nline 1")
    bubble = me.questions.first.locator(".bubble")
    part = bubble.bounding_box()["height"]
    me.page.get_by_role("button", name="Show all").click()
    assert bubble.bounding_box()["height"] > 2 * part


def test_code_is_copied(site, visit) -> None:
    code = 'for (;;) {\n\tgo("<b>");\n}'
    site.say(f"{DIRECT}Run:\n\n```js\n{code}\n```")
    me = visit(permissions=["clipboard-read", "clipboard-write"])
    answer = me.ask()
    answer.get_by_role("button", name="Copy", exact=True).click()
    answer.get_by_role("button", name="Copied").wait_for()
    assert me.page.evaluate("navigator.clipboard.readText()") == code
    answer.locator("code.lit .hljs-keyword").first.wait_for()  # the language came when it was needed
    assert answer.locator("code").inner_text() == code


def test_reading_a_long_conversation_shows_how_far_it_is(site, visit) -> None:
    site.say(DIRECT + "Read.", reading_ms=400)
    me = visit()
    answer = me.ask("word " * 300, wait=False)
    answer.get_by_role("progressbar").wait_for()
    assert "Reading" in answer.locator(".progress").inner_text()
    me.done()
    assert answer.locator(".prose").inner_text() == "Read."
    assert not answer.locator(".progress").is_visible()


def test_a_phone_has_everything(visit) -> None:
    me = visit(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert me.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    me.box.fill("hello")
    me.page.get_by_role("button", name="Send").tap()
    me.said("Fine.")
    me.done()
    me.page.get_by_role("button", name="Your chats").tap()
    drawer = me.page.get_by_role("dialog")
    drawer.get_by_role("button", name="New chat").tap()
    drawer.wait_for(state="hidden")
    assert me.answers.count() == 0
    me.page.get_by_role("button", name="Settings of this chat").tap()
    me.page.get_by_role("dialog").get_by_label("Temperature").fill("1")
    me.page.get_by_role("button", name="Close the settings").tap()
    for tab in ("Monitor", "Trace", "About", "Chat"):
        me.page.get_by_role("link", name=tab, exact=True).tap()
        assert me.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab


def test_the_narrowest_screen_needs_no_scrolling_sideways(other_site, visit) -> None:
    me = visit(other_site(keys={"me": "k"}), viewport={"width": 320, "height": 640})
    me.allow("status of 401")
    me.page.get_by_role("dialog").get_by_label("Key", exact=True).fill("k")
    me.page.keyboard.press("Enter")
    me.page.get_by_role("button", name="Forget the key").wait_for()
    me.ask("hello " * 40)
    wide = """() => [...document.querySelectorAll("header.top, header.top *, main, .column, .composer *")]
          .filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1).length"""
    for tab in ("Monitor", "Trace", "About", "Chat"):
        me.page.get_by_role("link", name=tab, exact=True).click()
        assert me.page.evaluate(wide) == 0, tab
        assert me.page.evaluate("document.querySelector('.view:not([hidden])').scrollWidth <= innerWidth"), tab


def test_the_theme_follows_the_system_or_the_switch(visit) -> None:
    me = visit(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = me.page.evaluate(ground)
    switch = me.page.get_by_role("button", name="Theme: as the system")
    switch.click()
    light = me.page.evaluate(ground)
    assert light != dark
    me.reload()
    assert me.page.evaluate(ground) == light
    me.page.get_by_role("button", name="Theme: light").click()
    me.page.get_by_role("button", name="Theme: dark").click()
    me.page.emulate_media(color_scheme="light")
    assert me.page.evaluate(ground) == light
    assert me.page.get_by_role("button", name="Theme: as the system").is_visible()
