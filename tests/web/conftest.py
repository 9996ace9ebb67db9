from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from strata.server.options import Options
from strata.worker import Care, Client
from support.browser import Visit, chromium
from support.site import Script, Site, engine


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one module: playwright keeps an event loop running in this thread, and tests elsewhere start their own."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def scripted(tmp_path_factory) -> Iterator[Site]:
    """A server with a scripted engine; each test says what it is to answer."""
    script = Script(tmp_path_factory.mktemp("script") / "script.json")
    with Client(engine(script.path), Care(beat=0.05, unread=100_000)) as client:
        script.client = client
        site = Site(client, script, Options(port=0, drain=0.2))
        yield site
        site.close()


@pytest.fixture
def site(scripted) -> Iterator[Site]:
    scripted.say("</think>\n\nFine.")
    yield scripted
    scripted.script.rest(30)


@pytest.fixture
def other_site(scripted) -> Iterator[Callable[..., Site]]:
    """More servers before the same engine, with options of their own."""
    with ExitStack() as stack:

        def start(**options: Any) -> Site:
            made = Site(scripted.client, scripted.script, Options(port=0, drain=0.2, **options), scripted.served)
            stack.callback(made.close)
            return made

        yield start
    scripted.script.rest(30)


@pytest.fixture
def visit(browser, site) -> Iterator[Callable[..., Visit]]:
    """Somebody opens the page; at the end nothing must have gone wrong."""
    visits: list[Visit] = []

    def start(where: Site = site, tab: str = "chat", **context: Any) -> Visit:
        given = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **context}
        one = Visit(browser.new_context(**given), where.url)
        visits.append(one)
        return one.open(tab)

    yield start
    for one in visits:
        one.context.close()
    for one in visits:
        one.check()


@pytest.fixture(scope="module")
def quiet(browser, scripted) -> Iterator[Visit]:
    """One page for tests that only compute in it."""
    one = Visit(browser.new_context(), scripted.url)
    yield one.open("about")
    one.context.close()
    one.check()
