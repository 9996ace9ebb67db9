"""A real browser for tests of the page: where it is found, and a visit that notes whatever goes wrong."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]  # of a root user in a container
SLOW = 30_000
"""Milliseconds to wait for something; far more than it takes, for machines under load."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; tests are skipped where there is none, unless BROWSER_TESTS is "required"."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("BROWSER_TESTS") == "required":
            pytest.fail(f"a browser is required, and none of {', '.join(NAMES)} is installed")
        pytest.skip("no Chromium is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page, opened by one person.

    Attributes:
        page: of playwright.
        wrong: what the console and uncaught errors said.
        bodies: what was posted to the server, in order.
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        context.set_default_timeout(SLOW)
        self.page: Page = context.new_page()
        self.wrong: list[str] = []
        self.allowed: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"uncaught: {error}"))
        self.page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.wrong.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        self.asked.append(request.url)
        if request.method == "POST" and request.post_data:
            self.bodies.append(json.loads(request.post_data))

    def allow(self, *patterns: str) -> None:
        """Things that the console may say in this test."""
        self.allowed += patterns

    def check(self) -> None:
        """Nothing went wrong, and nobody but the server was asked."""
        bad = [one for one in self.wrong if not any(re.search(pattern, one) for pattern in self.allowed)]
        assert not bad, bad
        foreign = [one for one in self.asked if not one.startswith((self.url, "blob:", "data:"))]
        assert not foreign, foreign

    def open(self, tab: str = "chat") -> "Visit":
        """Go to a tab and wait until it is there."""
        self.page.goto(f"{self.url}/#{tab}")
        self.page.locator(f".view-{tab} h1").first.wait_for(state="attached")
        return self

    def reload(self) -> None:
        self.page.reload()
        self.box.wait_for()

    @property
    def box(self) -> Locator:
        """Where a question is written."""
        return self.page.get_by_role("textbox", name="Your message")

    def said(self, text: str) -> Locator:
        """An answer's paragraph with this text; waits for it."""
        found = self.page.locator(".answer .prose").get_by_text(text, exact=True)
        found.wait_for()
        return found

    @property
    def answers(self) -> Locator:
        return self.page.locator(".answer")

    @property
    def questions(self) -> Locator:
        return self.page.locator(".question")

    def ask(self, text: str = "hi", *, wait: bool = True) -> Locator:
        """Send a question; wait until the answer is complete. Gives the last answer."""
        before = self.answers.count()
        self.box.fill(text)
        self.box.press("Enter")
        answer = self.answers.nth(before)
        answer.wait_for()
        if wait:
            self.done()
        return answer

    def done(self) -> None:
        """Wait until nothing is under way."""
        self.page.locator('.composer .send[data-shape="send"]').wait_for()
        self.page.locator(".answer[aria-busy=true]").wait_for(state="detached")

    def until(self, script: str) -> None:
        """Wait until this is true in the page; playwright's own way of waiting is what the page's policy forbids."""
        end = time.monotonic() + SLOW / 1000
        while not self.page.evaluate(script):
            assert time.monotonic() < end, script
            self.page.wait_for_timeout(10)

    def setting(self, name: str) -> Locator:
        """A field of the settings, which are opened for it."""
        panel = self.page.locator(".panel")
        if not panel.is_visible():
            self.page.get_by_role("button", name="Settings of this chat").click()
        return panel.get_by_label(name)

    def menu(self, words: str) -> None:
        """Choose something from the chat's menu."""
        self.page.get_by_role("button", name="Actions on this chat").click()
        self.page.get_by_role("menuitem", name=words).click()

    def download(self, act: Callable[[], None], folder: Path) -> Path:
        """The file that this hands out."""
        with self.page.expect_download() as waiting:
            act()
        path = folder / waiting.value.suggested_filename
        waiting.value.save_as(path)
        return path
