"""Another share of a GPU's memory, asked for over HTTP: done and shown, or refused with the reason."""

import time

import pytest

from strata.loading.files import ModelFile
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import Care, Client, CustomEngine, ScriptedEngine
from support.rescripted import LEAST, MOST, ODD
from support.site import CONTEXT, Script, Site

PATH = "/v1/strata/vram"


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """An engine of our own: its size is nobody else's business."""
    script = Script(tmp_path_factory.mktemp("script") / "script.json")
    values = {"file": str(script.path), "context": CONTEXT, "sizable": True}
    with Client(CustomEngine("support.rescripted:build", values), Care(beat=0.05)) as client:
        script.client = client
        made = Site(client, script, Options(port=0, drain=0.2))
        yield made
        made.close()


@pytest.fixture
def site(started):
    return started


@pytest.fixture
def keyed(started):
    made = Site(started.client, started.script, Options(port=0, drain=0.2, keys={"a": "secret"}), started.served)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("asked", "bytes_"),
    [(2 * 10**9, 2 * 10**9), ("2GB", 2 * 10**9), ("1.5 GiB", 3 << 29), (3e9, 3 * 10**9), (f"{MOST}", MOST)],
)
def test_it_is_done_and_every_look_shows_it(site, asked, bytes_):
    reply = site.post(PATH, {"vram": asked})
    assert reply.status == 200
    placed = f"cuda:0 (Abacus 9): {bytes_} bytes"
    assert reply.json == {
        "model": site.served.name, "vram": bytes_, "placed": placed, "slots": bytes_ // 10**7, "experts": 1000,
        "slot_bytes": bytes_,
    }  # fmt: skip
    assert site.get("/props").json["placed"] == placed
    (engine,) = site.get("/v1/strata/status").json["engines"]
    assert engine["placed"] == placed
    count = bytes_ // 10**7
    assert engine["slots"] == {"count": count, "held": count // 2, "experts": 1000, "bytes": count * 10**7}
    told = f'strata:expert_slots{{model_name="{site.served.name}"}} {float(count)}'
    end = time.monotonic() + 20
    while told not in site.get("/metrics").body.decode() and time.monotonic() < end:
        time.sleep(0.02)  # as of the last sign of life
    assert told in site.get("/metrics").body.decode()


@pytest.mark.parametrize(
    ("asked", "status", "words", "code"),
    [
        (LEAST - 1, 400, "are needed without a single routed expert", None),
        (MOST + 1, 409, "is the most now; nothing has changed", "no_room"),
        (ODD, 409, "cannot be changed here", "not_resizable"),
        (0, 400, "vram must be from 1 to", None),
        ("0", 400, "vram must be from 1 to", None),
        (1 << 60, 400, "vram must be from 1 to", None),
        ("9" * 5000, 400, "a number of bytes such as 4GB", None),
        (-1, 400, "a number of bytes such as 4GB", None),
        (1.5, 400, "a number of bytes such as 4GB", None),
        (True, 400, "a number of bytes such as 4GB", None),
        ("12 gigabytes", 400, "a number of bytes such as 4GB", None),
        ([5], 400, "a number of bytes such as 4GB", None),
        (None, 400, "vram is missing", None),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(site, asked, status, words, code):
    assert site.post(PATH, {"vram": 2 * 10**9}).status == 200
    reply = site.post(PATH, {"vram": asked})
    assert reply.status == status
    assert words in reply.error
    assert (reply.json["error"]["param"], reply.json["error"]["code"]) == ("vram", code)
    assert "2000000000 bytes" in site.get("/props").json["placed"]


def test_other_fields_are_refused_by_name(site):
    reply = site.post(PATH, {"vram": 2 * 10**9, "ram": 5})
    assert (reply.status, reply.json["error"]["param"]) == (400, "ram")


def test_it_needs_the_key(keyed):
    assert keyed.post(PATH, {"vram": "2GB"}).status == 401
    assert keyed.post(PATH, {"vram": "2GB"}, authorization="Bearer secret").status == 200


def test_a_page_of_somebody_else_cannot_ask(site):
    assert site.post(PATH, {"vram": "2GB"}, origin="https://example.com").status == 403


def test_a_scripted_engine_has_none(tmp_path, closing):
    file = tmp_path / "s.json"
    file.write_text('{"turns": [{"pieces": ["ok"]}]}')
    client = closing(Client(ScriptedEngine(str(file)), Care(beat=0.05)))
    client.wait_ready(30)
    site = Site(client, None, Options(port=0, drain=0.2), Served(client, ModelFile.open(None), "s"))
    try:
        reply = site.post(PATH, {"vram": "2GB"})
        assert (reply.status, "takes no GPU's memory" in reply.error) == (400, True)
    finally:
        site.close()
