"""An engine that is unloaded and loaded on demand by whoever owns it."""

import time

import psutil
import pytest

from strata.errors import StrataError
from strata.worker import Care, Client, ScriptedEngine, State, Submit


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "script.json"
    file.write_text('{"turns": [{"pieces": ["a", "b"], "delay_ms": 100}]}', encoding="utf-8")
    return ScriptedEngine(str(file))


def until(holds, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_begins_asleep_and_goes_when_told_to_but_never_under_an_answer(script) -> None:
    heard: list[State] = []
    with Client(script, Care(asleep=True, beat=0.05)) as client:
        client.on_change(lambda: heard.append(client.status.state))
        assert client.status.state is State.ASLEEP
        assert client.status.pid is None
        assert not client.sleep()
        client.wake()
        assert client.status.state is not State.ASLEEP
        client.wait_ready(30)
        pid = client.status.pid
        assert pid is not None
        with client.submit(Submit(prompt=(1,))) as answer:
            next(answer)
            assert not client.sleep()
            assert [type(event).__name__ for event in answer][-1] == "Finished"
        assert client.sleep()
        until(lambda: client.status.pid is None)
        assert client.status.state is State.ASLEEP
        assert not psutil.pid_exists(pid)
        with client.submit(Submit(prompt=(1,))) as answer:  # which wakes it
            assert list(answer)
        assert client.status.pid not in {None, pid}
    assert {State.STARTING, State.LOADING, State.READY, State.ASLEEP} <= set(heard)


def test_a_failed_start_is_tried_again_when_it_is_asked_for(script, tmp_path) -> None:
    file = tmp_path / "script.json"
    with Client(script, Care(asleep=True, beat=0.05)) as client:
        file.rename(tmp_path / "away")
        with pytest.raises(StrataError, match="script"):
            client.wait_ready(30)
        until(lambda: client.status.pid is None)
        assert client.status.state is State.ASLEEP
        assert "script" in client.status.reason
        (tmp_path / "away").rename(file)
        client.wait_ready(30)
