import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strata.server.options import Options
from strata.worker import Care, Client
from support.site import Script, Site, engine


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """What a module left open is reported in that module, not wherever it happens to be collected."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def scripted_client(tmp_path_factory) -> Iterator[tuple[Client, Script]]:
    """One engine for all tests; each says what it is to answer."""
    script = Script(tmp_path_factory.mktemp("script") / "script.json")
    with Client(engine(script.path), Care(beat=0.05, unread=100_000)) as client:
        script.client = client
        yield client, script


@pytest.fixture(scope="session")
def shared_site(scripted_client) -> Iterator[Site]:
    site = Site(*scripted_client, Options(port=0, drain=0.2))
    yield site
    site.close()


@pytest.fixture
def site(shared_site) -> Iterator[Site]:
    """A server with the usual options; nothing is under way before and after."""
    shared_site.say("ok")
    yield shared_site
    shared_site.script.rest()


@pytest.fixture
def other_site(shared_site) -> Iterator[Callable[..., Site]]:
    """More servers before the same engine, with options of their own."""
    sites: list[Site] = []

    def start(**options: Any) -> Site:
        given = {"port": 0, "drain": 0.2, **options}
        sites.append(Site(shared_site.client, shared_site.script, Options(**given), shared_site.served))
        sites[-1].say("ok")
        return sites[-1]

    yield start
    for one in sites:
        one.close()  # a second time does nothing
    shared_site.script.rest()


@pytest.fixture
def closing() -> Iterator[Callable[[Any], Any]]:
    """Take a client that the test opened, and close it after the test, not when it happens to be collected."""
    with contextlib.ExitStack() as opened:
        yield opened.enter_context
