"""A model's text as elements: what it may become, and that it becomes the same in pieces as whole."""

import pytest

SHOWS = """async (texts) => {
  const { render } = await import("/static/chat/markdown.js");
  for (const text of texts) {
    const place = document.createElement("div");
    place.append(...render(text));
    document.body.append(place);
  }
}"""

ATTACKS = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit=1'>",
    "<svg onload=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    "<svg><animate onbegin=window.hit=1 attributeName=x dur=1s>",
    "<svg><a xlink:href='javascript:window.hit=1'><text>x</text></a></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "<iframe src='javascript:window.hit=1'></iframe>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<object data='javascript:window.hit=1'></object>",
    "<embed src='javascript:window.hit=1'>",
    "<style>* { display: none !important }</style>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<link rel=stylesheet href='https://evil.example/x.css'>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action='https://evil.example'><input name=q><button>Send</button></form>",
    "<button formaction='javascript:window.hit=1'>x</button>",
    "<details open ontoggle=window.hit=1>x</details>",
    "<p style='position:fixed;inset:0'>over everything</p>",
    "<a href='javascript:window.hit=1' id=location>x</a>",
    "<input autofocus onfocus=window.hit=1>",
    "<video><source onerror=window.hit=1></video>",
    "<body onload=window.hit=1>",
    "<template><script>window.hit=1</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=window.hit=1>'>",
    "<br onclick=window.hit=1>",
    "<sub onmouseover=window.hit=1>x</sub>",
    "[x](javascript:window.hit=1)",
    "[x](JaVaScRiPt:window.hit=1)",
    "[x](\x01javascript:window.hit=1)",
    "[x](java\tscript:window.hit=1)",
    "[x](&#106;avascript:window.hit=1)",
    "[x](vbscript:window.hit=1)",
    "[x](data:text/html,<script>window.hit=1</script>)",
    "[x](//evil.example)",
    "[x](static/app.js)",
    "[x](blob:http://127.0.0.1/1)",
    "<javascript:window.hit=1>",
    "[x]: javascript:window.hit=1\n\n[x]",
    "![x](javascript:window.hit=1)",
    "![x](https://evil.example/leak.png)",
    "![x](data:image/svg+xml,<svg onload=window.hit=1>)",
    '[x](https://ok.example "onmouseover=window.hit=1")',
    "[x](https://ok.example\"onmouseover='window.hit=1')",
    "`<img src=x onerror=window.hit=1>`",
    "```html\n<img src=x onerror=window.hit=1>\n```",
    '```"><img/src=x/onerror=window.hit=1>\nx\n```',
    "```js'onmouseover='window.hit=1\nx\n```",
    "| a |\n|---|\n| <img src=x onerror=window.hit=1> |",
    "# <img src=x onerror=window.hit=1>",
    "- [ ] <img src=x onerror=window.hit=1>",
    "$<img src=x onerror=window.hit=1>$",
    "\\[<img src=x onerror=window.hit=1>\\]",
    "<a id=document><a id=document name=cookie href=x>",
    "<form name=body><input name=firstChild>",
    "<button data-copy=code>Copy</button>",
    "https://evil.example/<img src=x onerror=window.hit=1>",
    "<!--><img src=x onerror=window.hit=1>-->",
    "<![CDATA[<img src=x onerror=window.hit=1>]]>",
    "<?xml <img src=x onerror=window.hit=1>?>",
)  # fmt: skip

FOUND = """() => {
  const bad = [];
  const set = (...names) => new Set(names.join(" ").split(" "));
  const tags = set("A BLOCKQUOTE BR BUTTON CODE DEL DIV EM H3 H4 H5 H6 HR KBD LI OL P PRE SPAN STRONG SUB SUP",
    "TABLE TBODY TD TH THEAD TR UL");
  const names = set("aria-label class data-copy data-lang href rel role start tabindex target title type");
  for (const element of document.querySelectorAll("%s *")) {
    if (!tags.has(element.tagName)) bad.push(element.outerHTML);
    for (const { name, value } of element.attributes) {
      if (!names.has(name)) bad.push(element.outerHTML);
      if (name === "href" && !/^(https?:\\/\\/|mailto:)/.test(value)) bad.push(element.outerHTML);
      if (name === "id" || name === "name") bad.push(element.outerHTML);
    }
    if (element.tagName === "BUTTON" && !element.closest(".code-head")) bad.push(element.outerHTML);
  }
  return bad;
}"""


def test_nothing_that_a_model_writes_does_anything(site, visit) -> None:
    site.say("</think>\n\n" + "\n\n".join(ATTACKS), *("</think>\n\n" + attack for attack in ATTACKS[:3]))
    me = visit()
    answer = me.ask()
    assert me.page.evaluate(FOUND % ".answer .prose") == []
    assert answer.get_by_text("<script>window.hit = 1</script>").is_visible()  # it is text
    for element in answer.locator("a, button, summary").all():
        element.dispatch_event("mouseover")
        element.dispatch_event("focus")
    assert answer.is_visible()  # no style hid it
    me.page.evaluate(SHOWS, list(ATTACKS))  # each alone, so that none hides in another's remains
    me.page.wait_for_timeout(100)
    assert me.page.evaluate("window.hit === undefined && location.origin === origin")
    assert me.page.evaluate("document.baseURI.startsWith(location.origin)")
    assert not [url for url in me.asked if "evil" in url]
    assert (
        me.page.evaluate("document.querySelectorAll('body > div > img, body > div script, body > div svg').length") == 0
    )


def test_thoughts_calls_results_titles_and_imports_are_text_too(site, visit, tmp_path) -> None:
    import json

    attack = "<img src=x onerror='window.hit=1'>"
    inner = f"<parameter=city>\n{attack}\n</parameter>\n"
    site.say(
        f"{attack}</think>\n\n<tool_call>\n<function=get_w>\n{inner}</function>\n</tool_call>", f"</think>\n\n{attack}"
    )
    me = visit()
    me.setting("Tools").fill(
        '{"name": "get_w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}'
    )
    answer = me.ask(attack)
    answer.locator(".thinking summary").click()
    answer.get_by_role("textbox", name="Result of get_w").fill(attack)
    answer.get_by_role("button", name="Send the result").click()
    me.answers.nth(1).locator(".prose p").wait_for()
    me.done()
    me.setting("System prompt").fill(attack)
    numbers = {"temperature": attack, "__proto__": 1}
    chat = {"title": attack, "id": "__proto__", "picks": {"__proto__": "x"}, "settings": {"numbers": numbers}}
    message = {"id": "1", "role": "assistant", "content": attack, "usage": {"prompt": attack}, "speed": attack}
    message["calls"] = [{"name": attack, "arguments": attack}]
    hostile = {"format": "strata-chats", "version": 1, "chats": [{"chat": chat, "messages": [message]}]}
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps(hostile), encoding="utf-8")
    me.page.locator(".sidebar input[type=file]").set_input_files(file)
    me.page.get_by_text("Imported 1 chat.").wait_for()
    assert me.page.evaluate("document.querySelectorAll('img, main script').length") == 0
    assert me.page.evaluate("window.hit === undefined")
    assert me.page.get_by_role("heading", name=attack).is_visible()


TEXTS = (
    "# Title\n\nA paragraph with **bold**, *italic*, `code`, ~~gone~~ and [a link](https://example.org/a_b).\n\nNext.",
    "Intro:\n- one\n- two\n  - two and a half\n- three\n\nAfter.\n\n1. first\n\n2. second\n\n   more of it\n\n3. third",
    "```python\ndef f():\n    return '```'\n\n\nprint(f())\n```\n\ntail\n\n~~~\nx\n~~~",
    "| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 | 4 |\n\nUnder the table.",
    "> quoted\n> more\nlazy\n\nplain\n\n---\n\nSetext\n======\n\nlast *words",
    "See [the page][1] and [that].\n\n[1]: https://example.org\n[that]: https://example.org/that",
    "Windows\r\nlines\r\n\r\n- a\r\n- b\r\n\r\nend",
    "Math: $a_1 + b_1$ and \\(x^2\\), costs $5 and $10.\n\n\\[\n\\sum_i x_i\n\\]\n\n$$y = z$$\n\ndone",
    "<div>\nhtml\n</div>\n\ntext<br>more <b>x</b>\n\n<details>\n<summary>s</summary>\n\ninner\n\n</details>",
    "- [x] done\n- [ ] to do\n\n* * *\n\nunfinished **bold and `code",
    "漢字😀 **強調** e\u0301\n\n```\nopen fence never closed\n  indented\n",
    "\n\n   \n\n    indented code\n\n\n\nafter\n\n\n\n\n",
)  # fmt: skip

IN_PIECES = """async ([text, size]) => {
  const { render } = await import("/static/chat/markdown.js");
  const { Streamed } = await import("/static/chat/streamed.js");
  const whole = document.createElement("div");
  whole.append(...render(text.replace(/\\r\\n?/g, "\\n")));
  const place = document.createElement("div");
  const streamed = new Streamed(place);
  let moved = 0;
  for (let end = size; end < text.length; end += size) {
    const before = [...place.children].slice(0, -2);
    streamed.write(text.slice(0, end));
    streamed.flush();
    before.forEach((element, number) => { if (place.children[number] !== element) moved += 1; });
  }
  streamed.end(text);
  return [place.innerHTML, whole.innerHTML, moved];
}"""


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_text_in_pieces_becomes_the_same_as_in_one(quiet, number) -> None:
    for size in (1, 3, 7):
        pieces, whole, moved = quiet.page.evaluate(IN_PIECES, [TEXTS[number], size])
        assert pieces == whole
        assert moved == 0  # elements further up stay those that they are


HEALED = (
    ("Some **bold", "Some <strong>bold</strong>"),
    ("Some `code", "Some <code>code</code>"),
    ("Some [link](http", "Some link"),
    ("A paragraph\n-", "A paragraph"),  # would be a heading for a moment
    ("A paragraph\n=", "A paragraph"),
    ("Text\n\n#", "Text"),
    ("Text\n\n1", "Text"),
    ("Text\n\n| a | b", "Text"),
    ("Text **", "Text"),
)  # fmt: skip


def test_what_is_half_written_does_not_flash_by_as_something_else(quiet) -> None:
    script = """async (text) => {
      const { Streamed } = await import("/static/chat/streamed.js");
      const place = document.createElement("div");
      const streamed = new Streamed(place);
      streamed.write(text);
      streamed.flush();
      return place.innerHTML;
    }"""
    for text, shown in HEALED:
        assert quiet.page.evaluate(script, text).replace(" </p>", "</p>") == f"<p>{shown}</p>", text


@pytest.mark.parametrize(
    "text", ["> " * 3000 + "a", "- " * 2000 + "x", "[" * 5000 + "](x)" * 10], ids=["quotes", "lists", "links"]
)
def test_nesting_without_end_is_shown_as_text(site, visit, text) -> None:
    site.say("</think>\n\n" + text + "\n\nthe end", size=400)
    me = visit()
    answer = me.ask("deep")
    assert answer.get_attribute("aria-busy") == "false"
    assert (
        text[:50].strip() in answer.locator(".prose").inner_text().replace("\n", " ")
        or "the end" in answer.inner_text()
    )
    site.say("</think>\n\nfine")
    me.ask("again")
    me.said("fine")
    me.reload()
    me.said("fine")


def test_a_long_answer_stays_fast(quiet) -> None:
    script = """async () => {
      const { Streamed } = await import("/static/chat/streamed.js");
      const place = document.createElement("div");
      const streamed = new Streamed(place);
      const part = "A paragraph with some **words** and `code`.\\n\\n- an item\\n- another\\n\\n";
      const times = [];
      let text = "";
      for (let n = 0; n < 600; n += 1) {
        text += part;
        streamed.write(text);
        const began = performance.now();
        streamed.flush();
        times.push(performance.now() - began);
      }
      const middle = (list) => list.sort((a, b) => a - b)[list.length >> 1];
      return [middle(times.slice(50, 150)), middle(times.slice(-100))];
    }"""
    early, late = quiet.page.evaluate(script)
    assert late < 4 * early + 2, (early, late)  # work per piece does not grow with what is there already
