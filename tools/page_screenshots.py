"""Pictures of the page: every view, both themes, desktop and phone. `python tools/page_screenshots.py [FOLDER]`.

Serves a scripted engine for a conversation that has everything, and Pebble for the rest; needs Chromium.
"""

import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from playwright.sync_api import Browser, BrowserContext, Page

from strata.loading.files import ModelFile
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import Client, ModelEngine
from support.browser import Visit, chromium
from support.site import Site, call, turn

SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
THEMES = ("light", "dark")
DIRECT = "</think>\n\n"
WORDS = """\
The user asks how layers of rock are read.

- superposition first
- then what cuts what</think>

Rock is read **from the bottom up**: what lies deeper was there first.

1. *Superposition.* Each layer is younger than the one below it.
2. *Original horizontality.* Layers are laid down flat; what is tilted was tilted later.
3. *Cross-cutting.* A fault is younger than everything it cuts, see [the survey](https://example.org/survey).

```python
def age(layers: list[Layer], depth: float) -> float:
    \"\"\"Million years at a depth in metres, between two dated layers.\"\"\"
    above, below = neighbours(layers, depth)
    share = (depth - above.depth) / (below.depth - above.depth)
    return above.age + share * (below.age - above.age)  # linear, for want of better
```

| Layer | Age (My) | Thickness |
|---|---:|---:|
| Chalk | 66 | 300 m |
| Greensand | 110 | 45 m |
| Sandstone | 250 | 1,200 m |

> The present is the key to the past.
"""
TOOLS = '[{"name": "read_core", "description": "Read a drill core.", "parameters": {"type": "object", "properties": \
{"site": {"type": "string"}, "metres": {"type": "number"}}, "required": ["site"]}}]'


def scripted(browser: Browser, site: Site, folder: Path) -> None:
    """Views that need a conversation."""
    for theme in THEMES:
        for size, (width, height) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
            )
            me = Visit(context, site.url).open()
            site.say(
                turn(WORDS, size=6, delay_ms=2),
                f"{DIRECT}I look at the core.\n\n{call('read_core', site='Zumaia', metres='12.5')}",
                {"pieces": ["</think>", "\n\n", "At 12.5 m there is"], "fault": "raise"},
                turn("Let me think about it. " * 200, size=9, delay_ms=20),
            )
            taking = _taking(me.page, folder, f"{size}-{theme}")
            me.setting("Tools").fill(TOOLS)
            me.page.get_by_role("button", name="Close the settings").click()
            me.ask("How does one read layers of rock?")
            me.page.locator("code.lit").wait_for()
            taking("chat-end")
            me.page.locator(".scroller").evaluate("e => { e.scrollTop = 0 }")
            me.page.locator(".thinking summary").click()
            taking("chat")
            me.page.locator(".scroller").evaluate("e => { e.scrollTop = e.scrollHeight }")
            answer = me.ask("And at Zumaia?")
            taking("chat-call")
            answer.get_by_role("textbox", name="Result of read_core").fill('{"limestone": true, "iridium_ppb": 6.4}')
            answer.get_by_role("button", name="Send the result").click()
            me.page.locator(".notice.bad").wait_for()
            taking("chat-failure")
            me.ask("Go on", wait=False)
            me.page.wait_for_timeout(600)
            taking("chat-thinking")
            me.page.keyboard.press("Escape")
            me.done()
            me.setting("System prompt").fill("You are a geologist of few words.")
            taking("chat-settings")
            if size == "phone":
                me.page.get_by_role("button", name="Close the settings").click()
                me.page.get_by_role("button", name="Your chats").click()
                taking("chat-list")
            context.close()


def pebble(browser: Browser, site: Site, folder: Path) -> None:
    """Views that need a model."""
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            with suppress(TimeoutError):  # on a machine under load
                site.chat("Count from 1 to 60.", max_tokens=400)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for one in asking:  # so that there is something to see
        one.start()
    _each(browser, site, folder, ("chat", "monitor", "trace", "about"), "pebble-")
    done.set()
    for one in asking:
        one.join()
    for theme in THEMES:
        context = browser.new_context(
            viewport={"width": 1440, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
        me = Visit(context, site.url).open()
        me.ask("Count from 1 to 20.")
        _taking(me.page, folder, f"desktop-{theme}")("pebble-chat-answer")
        context.close()


def _each(browser: Browser, site: Site, folder: Path, tabs: tuple[str, ...], prefix: str) -> None:
    for theme in THEMES:
        for size, (width, height) in SIZES.items():
            context: BrowserContext = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
            )
            for tab in tabs:
                me = Visit(context, site.url).open(tab)
                me.page.locator('.state[data-state="ready"]').wait_for()
                me.page.wait_for_timeout(4000 if tab in {"monitor", "trace"} else 700)
                _taking(me.page, folder, f"{size}-{theme}")(prefix + tab)
                me.page.close()
            context.close()


def _taking(page: Page, folder: Path, ending: str) -> Callable[[str], None]:
    def take(name: str) -> None:
        page.mouse.move(0, 0)
        page.wait_for_timeout(150)
        page.screenshot(path=folder / f"{name}-{ending}.png")

    return take


def main(arguments: list[str]) -> int:
    """Make all of them."""
    folder = Path(arguments[0] if arguments else tempfile.mkdtemp(prefix="page-"))
    folder.mkdir(parents=True, exist_ok=True)
    from support.site import Script, engine

    with chromium() as browser, tempfile.TemporaryDirectory() as scratch:
        script = Script(Path(scratch) / "script.json")
        with Client(engine(script.path)) as client:
            script.client = client
            site = Site(client, script, Options(port=0, drain=0.1))
            scripted(browser, site, folder)
            site.close()
        with Client(ModelEngine("pebble", None, {"slots": 4, "queue": 8}, None, 1.0, "f32")) as client:
            client.wait_ready(120)
            site = Site(client, script, Options(port=0, drain=0.1), Served(client, ModelFile.open(None), "pebble"))
            pebble(browser, site, folder)
            site.close()
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
