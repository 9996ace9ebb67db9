"""Another share of a GPU's memory, over the pipe: asked for, declined, and what the next process is told."""

from concurrent.futures import Future

import pytest

from strata.errors import RequestError, RoomError, TierError
from strata.worker import Care, Client, CustomEngine, EngineError, ModelEngine, Submit, Tokens
from strata.worker import messages as m
from strata.worker.answering import InProcess
from strata.worker.supervisor import Supervisor
from support.engines import Engine

CARE = Care(hang=20.0, loading_hang=20.0, beat=0.05, pause=0.05)


@pytest.fixture
def client(leaves_nothing):  # noqa: ARG001
    with Client(CustomEngine("support.engines:resizable"), CARE) as started:
        started.wait_ready(30)
        yield started


def test_it_is_done_and_said(client):
    done = client.resize(5000, 30)
    assert (done.vram, done.placed, done.slots, done.experts, done.slot_bytes) == (5000, "5000 bytes", 5, 10, 4000)
    assert client.ready.placed == "5000 bytes"
    assert client.wait_ready(5).placed == "5000 bytes"


@pytest.mark.parametrize(("vram", "error"), [(1, RequestError), (2, RoomError), (3, TierError)])
def test_what_is_declined_is_the_same_error_here_and_the_engine_goes_on(client, vram, error):
    with pytest.raises(error, match=f"no {vram}"):
        client.resize(vram, 30)
    assert client.ready.placed == ""
    pid = client.status.pid
    assert any(isinstance(event, Tokens) for event in client.submit(Submit((1,))))
    assert (client.status.pid, client.status.restarts) == (pid, 0)


def test_a_fault_that_leaves_nobody_knows_what_ends_the_engine(client):
    with pytest.raises(EngineError, match="ended before it answered"):
        client.resize(4, 30)
    client.wait_ready(30)
    assert client.status.restarts == 1
    assert client.resize(5000, 30).slots == 5


def test_without_an_engine_there_is_nothing_to_resize(leaves_nothing):  # noqa: ARG001
    with (
        Client(CustomEngine("support.engines:resizable"), Care(asleep=True)) as client,
        pytest.raises(EngineError, match="the engine is asleep"),
    ):
        client.resize(5000, 30)


def test_the_next_process_takes_what_this_one_takes_now():
    """Memory that was given back is not taken again by a crash, or by waking."""
    supervisor = Supervisor(ModelEngine("model.gguf", vram=10**10), Care(asleep=True))
    supervisor._ready = m.Ready("m", 1, 1, m.Limits(1, 1), "f", placed="before")
    asked = supervisor._asked[7] = Future()
    supervisor._hear(None, m.Resized(7, 5 * 10**9, "after", 1, 2, 3))
    assert asked.result(0).placed == supervisor.ready.placed == "after"
    assert supervisor._engine == ModelEngine("model.gguf", vram=5 * 10**9)


def test_in_this_process_too():
    class Sizable(Engine):
        def resize(self, vram, nonce=0):
            return m.Resized(nonce, vram, "here", 1, 2, 3)

    source = InProcess(Sizable())
    assert source.resize(9) == m.Resized(0, 9, "here", 1, 2, 3)
    source.close()
