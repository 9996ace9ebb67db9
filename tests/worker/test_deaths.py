"""Every way an engine's process can end, and what becomes of the requests it had."""

import logging
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from strata.worker import Care, Client, CustomEngine, EngineError, Kind, State, Submit, Tokens
from support.command import environment

QUICK = Care(hang=1.0, loading_hang=20.0, beat=0.05, pause=0.05, starts=3)
LONG = {"pieces": ["a"] * 20000, "delay_ms": 2}


@pytest.fixture
def custom(leaves_nothing):  # noqa: ARG001
    clients: list[Client] = []

    def start(name: str, care: Care = QUICK, **values: object) -> Client:
        clients.append(Client(CustomEngine(f"support.engines:{name}", values), care))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def text(events) -> str:
    return b"".join(piece.bytes for e in events if isinstance(e, Tokens) for piece in e.tokens).decode()


def failure(answer) -> EngineError:
    with pytest.raises(EngineError) as caught:
        list(answer)
    return caught.value


def begin(client: Client, **options: object):
    """Submit, and wait for the first token."""
    answer = client.submit(Submit((1,), **options))  # type: ignore[arg-type]
    assert any(isinstance(event, Tokens) for event in answer)
    return answer


def test_killed_again_and_again_it_loses_the_running_requests_alone(scripted) -> None:
    client = scripted(*[turn for _ in range(8) for turn in (LONG, {"pieces": ["next"]})], conversations=1)
    for _ in range(8):
        running = begin(client)
        queued = client.submit(Submit((1,)))
        os.kill(client.status.pid, signal.SIGKILL)
        error = failure(running)
        assert (error.kind, "signal 9" in str(error)) == (Kind.ENGINE_DIED, True)
        assert text(queued) == "next"
    assert client.status.restarts == 8
    assert "signal 9" in client.status.reason


def test_several_running_ones_fail_together_and_readiness_knows(scripted) -> None:
    client = scripted(LONG, LONG, {"pieces": ["ok"]})
    answers = [begin(client), begin(client)]
    os.kill(client.status.pid, signal.SIGKILL)
    assert [failure(answer).kind for answer in answers] == [Kind.ENGINE_DIED] * 2
    assert client.status.state in {State.RESTARTING, State.STARTING}
    assert not client.status.ready
    assert text(client.submit(Submit((1,)))) == "ok"


def test_a_hung_engine_is_ended_and_says_where_it_hung(scripted, caplog) -> None:
    caplog.set_level(logging.INFO, "strata.worker")
    client = scripted({"pieces": ["a"], "fault": "hang"}, {"pieces": ["ok"]})
    answer = begin(client)
    began = time.monotonic()
    error = failure(answer)
    assert 0.7 < time.monotonic() - began < 3
    assert error.kind is Kind.ENGINE_HUNG
    assert "no sign of life for 1 s" in str(error)
    assert "in _fault" in caplog.text
    assert text(client.submit(Submit((1,)))) == "ok"


def test_running_out_of_memory_is_said(scripted) -> None:
    client = scripted({"pieces": ["a"], "fault": "memory"}, {"pieces": ["ok"]})
    error = failure(begin(client))
    assert error.kind is Kind.OUT_OF_MEMORY
    assert "memory ran out" in str(error)
    assert text(client.submit(Submit((1,)))) == "ok"


def test_a_stopped_process_of_ours_does_not_take_the_engine_for_hung(scripted, monkeypatch) -> None:
    client = scripted(LONG)
    answer = begin(client)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 1000)  # as after a suspension
    monkeypatch.setattr("strata.worker.supervisor.time", later)  # its clock alone: others run on in this process
    time.sleep(0.3)
    assert client.status.state is State.BUSY
    answer.close()


def test_a_request_that_kills_two_engines_is_not_given_to_a_third(custom) -> None:
    client = custom("deadly")
    assert failure(client.submit(Submit((1,), salt="poison"))).kind is Kind.ENGINE_DIED
    assert client.status.restarts == 2
    assert text(client.submit(Submit((1,)))) == "ok"
    assert client.status.restarts == 2


def test_a_crash_is_named(custom) -> None:
    client = custom("deadly", signal=signal.SIGSEGV)
    assert "SIGSEGV" in str(failure(client.submit(Submit((1,), salt="poison"))))


@pytest.mark.parametrize("place", ["read", "window"])
@pytest.mark.parametrize("torch", [False, True, "gpu"])
def test_a_model_that_runs_out_of_memory_says_so_and_begins_anew(custom, tmp_path, place, torch) -> None:
    file = tmp_path / "scarce"
    client = custom("scarce", file=str(file), place=place, torch=torch)
    client.wait_ready(30)
    first = client.status.pid
    file.touch()
    error = failure(client.submit(Submit((1, 2))))
    assert error.kind is Kind.OUT_OF_MEMORY
    assert "memory ran out while this was answered" in str(error)
    assert text(client.submit(Submit((1, 2)))) == "1 2 3"
    assert client.status.pid != first
    assert client.status.restarts == 1


def test_a_model_whose_gpu_fails_says_so_and_begins_anew(custom, tmp_path) -> None:
    file = tmp_path / "broken"
    client = custom("scarce", file=str(file), place="window", torch="device")
    client.wait_ready(30)
    first = client.status.pid
    file.touch()
    error = failure(client.submit(Submit((1, 2))))
    assert error.kind is Kind.ENGINE_DIED
    assert "the GPU failed while this was answered" in str(error)
    assert "illegal memory access" in str(error)
    assert text(client.submit(Submit((1, 2)))) == "1 2 3"
    assert client.status.pid != first


@pytest.mark.parametrize("memory", [False, True])
def test_an_engine_that_dies_at_every_start_is_given_up_with_the_reason(custom, tmp_path, memory) -> None:
    file = tmp_path / "curse"
    file.touch()
    client = custom("stillborn", file=str(file), memory=memory)
    waiting = client.submit(Submit((1,)))
    error = failure(waiting)
    assert error.kind is Kind.NOT_READY
    assert "3 times in a row" in str(error)
    assert ("memory ran out while" if memory else "SIGSEGV") in str(error)
    assert (client.status.state, client.status.restarts) == (State.FAILED, 2)
    assert client.status.reason == str(error)
    file.unlink()
    client.restart()
    client.wait_ready(20)
    assert text(client.submit(Submit((1,)))) == "ok"


def test_garbage_on_the_pipe_ends_the_engine_cleanly_either_way(custom) -> None:
    client = custom("garbled")
    assert failure(client.submit(Submit((1,), salt="garbage"))).kind is Kind.PROTOCOL
    assert text(client.submit(Submit((1,)))) == "ok"
    before = client.status.restarts
    life = client._supervisor._life
    assert life is not None
    life.child.send(b"\xff" * 64)
    while client.status.restarts == before:
        time.sleep(0.01)
    assert "is no message" in client.status.reason or "announces" in client.status.reason
    assert text(client.submit(Submit((1,)))) == "ok"


def test_what_an_engine_prints_goes_to_the_log_alone(custom, caplog, capfd) -> None:
    caplog.set_level(logging.INFO, "strata.worker")
    client = custom("talkative")
    assert text(client.submit(Submit((1,)))) == "ok"
    client.close()
    assert "to stdout" in caplog.text
    assert "to stderr" in caplog.text
    assert max(len(record.getMessage()) for record in caplog.records) < 5000
    assert capfd.readouterr() == ("", "")


def test_a_bug_in_the_loop_is_reported_with_its_place_in_the_log(custom, caplog) -> None:
    caplog.set_level(logging.INFO, "strata.worker")
    client = custom("broken")
    error = failure(client.submit(Submit((1,), salt="raise")))
    assert (error.kind, client.status.restarts) == (Kind.FAILED, 0)
    error = failure(client.submit(Submit((1,), salt="tick")))
    assert "unexpected ZeroDivisionError in the engine's loop: in tick" in str(error)
    assert "in tick" in caplog.text
    assert "Traceback" in caplog.text


def test_signals_meant_for_us_do_not_reach_it_and_sigterm_ends_it_in_order(custom, tmp_path) -> None:
    file = tmp_path / "saved"
    client = custom("saving", file=str(file), seconds=0.2)
    client.wait_ready(20)
    pid = client.status.pid
    assert pid is not None
    assert os.getpgid(pid) != os.getpgid(0)
    os.kill(pid, signal.SIGINT)
    assert text(client.submit(Submit((1,)))) == "ok"
    os.kill(pid, signal.SIGTERM)
    client.submit(Submit((1,)))
    while client.status.restarts == 0:
        time.sleep(0.01)
    assert file.read_text(encoding="ascii") == "saved"
    assert "SIGTERM" in client.status.reason


def test_closing_waits_for_what_is_being_saved_but_not_for_ever(custom, tmp_path) -> None:
    file = tmp_path / "saved"
    client = custom("saving", file=str(file), seconds=0.5)
    client.wait_ready(20)
    client.close()
    assert file.read_text(encoding="ascii") == "saved"
    client = custom("saving", file=str(tmp_path / "never"), seconds=60)
    client.wait_ready(20)
    began = time.monotonic()
    client.close(0.5)
    assert time.monotonic() - began < 1.5
    assert not (tmp_path / "never").exists()


PARENT = """
import os, sys, time
sys.path[:0] = {path!r}
from strata.worker import Client, CustomEngine, Submit
client = Client(CustomEngine("support.engines:{name}", {values!r}))
client.wait_ready(20)
answer = client.submit(Submit((1,)))
print(client.status.pid, flush=True)
time.sleep(0.1)
{end}
"""


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("plain", "os._exit(3)"),
        ("plain", "os.kill(os.getpid(), 9)"),
        ("orphan", "os.kill(os.getpid(), 9)"),
        ("plain", ""),
    ],
    ids=["exit", "kill", "hung", "end"],
)
def test_it_does_not_outlive_its_client(name, end) -> None:
    code = PARENT.format(path=[entry for entry in sys.path if entry], name=name, values={}, end=end)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, env=environment()
    )
    assert done.stderr == ""
    pid = int(done.stdout)
    limit = time.monotonic() + 5
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_an_engine_that_cannot_be_named_to_its_process_is_an_error_at_once(custom) -> None:
    client = custom("plain", value=object())
    with pytest.raises(EngineError, match="cannot be started: a message of type Start cannot be sent"):
        client.wait_ready(20)
    assert client.status.state is State.FAILED
