"""The page before a real model: what the README promises of it."""

from collections.abc import Iterator

import pytest

from strata.loading.files import ModelFile
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import Client, ModelEngine
from support.site import Site


@pytest.fixture(scope="module")
def pebble() -> Iterator[Site]:
    with Client(ModelEngine("pebble", 2, {"slots": 2, "queue": 8})) as client:
        client.wait_ready(300)
        served = Served(client, ModelFile.open(None), "pebble")
        site = Site(client, None, Options(port=0, drain=0.2), served)  # type: ignore[arg-type]
        yield site
        site.close()


def test_pebble_counts_thinks_and_calls_a_tool(pebble, visit) -> None:
    me = visit(pebble)
    me.page.get_by_role("button", name="Count from 1 to 20.").click()
    me.box.press("Enter")
    me.said(", ".join(str(n) for n in range(1, 21)))
    me.done()
    answer = me.answers.first
    answer.locator(".thinking summary").click()
    answer.locator(".thought p").first.wait_for()
    me.page.get_by_role("button", name="New chat").first.click()
    me.page.get_by_role("button", name="Set the timer for 25 minutes.").click()
    me.box.press("Enter")
    result = me.page.get_by_role("textbox", name="Result of set_timer")
    result.wait_for()
    assert me.page.locator(".call dd").all_inner_texts() == ["25"]
    result.fill("saved as blue-31")
    me.page.get_by_role("button", name="Send the result").click()
    me.said("The tool set_timer says: saved as blue-31")
    me.done()
    me.page.get_by_role("link", name="About").click()
    about = me.page.locator(".view-about")
    about.get_by_text("It runs on").wait_for()
    assert "2,048 tokens" in about.inner_text()
