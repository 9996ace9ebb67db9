"""A model whose engine runs in a process of its own, against one whose engine does not."""

import os
import signal

import psutil
import pytest

import strata
from strata.api import Finished
from strata.errors import GgufError, ModelError, RequestError
from strata.worker import EngineError, Kind
from support.tiny_file import tiny_tensors, write_tiny


@pytest.fixture(scope="module")
def beside():
    with strata.load(process=True) as model:
        yield model


@pytest.fixture(scope="module")
def inside():
    with strata.load() as model:
        yield model


REQUESTS = [
    {"messages": "Count from 7 to 19.", "thinking": False},
    {"messages": "Count from 1 to 5.", "max_tokens": 9, "logprobs": 2},
    {"messages": "What can you do?", "max_tokens": 20, "temperature": 1.0, "seed": 5, "drafts": 4},
    {"messages": "Count from 1 to 9.", "thinking": False, "stop": "7"},
    {"messages": "Count.", "grammar": {"type": "regex", "regex": "[0-9]{3}!"}},
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_both_say_the_same(beside, inside, request_) -> None:
    ours, theirs = inside.chat(**request_), beside.chat(**request_)
    assert (ours.text, ours.reasoning, ours.tokens) == (theirs.text, theirs.reasoning, theirs.tokens)
    assert (ours.finish_reason, ours.stop) == (theirs.finish_reason, theirs.stop)
    assert ours.usage.prompt_tokens == theirs.usage.prompt_tokens


@pytest.mark.parametrize("which", ["beside", "inside"])
def test_a_second_turn_reads_nothing_again(request, which) -> None:
    model = request.getfixturevalue(which)
    question = {"role": "user", "content": "Count from 3 to 8."}
    first = model.chat([question], thinking=False)
    second = model.chat([question, first.message(), {"role": "user", "content": "Count from 2 to 4."}], thinking=False)
    before = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.cached_tokens >= before - 2  # the end of the turn has not been computed
    assert second.text == "2, 3, 4"


def test_a_clients_number_in_the_system_prompt_does_not_cost_a_reading(inside) -> None:  # case K13
    rules = "You answer with numbers and nothing else. " * 12
    talk = [{"role": "user", "content": "Count from 3 to 6."}]
    for turn, nonce in enumerate(["a1b2c", "d3e4f", "00000"]):
        line = f"x-anthropic-billing-header: cc_version=1.2.3; cc_entrypoint=cli; cch={nonce};"
        system = {"role": "system", "content": [{"type": "text", "text": line}, {"type": "text", "text": rules}]}
        reply = inside.chat([system, *talk], thinking=False, max_tokens=12)
        assert turn == 0 or reply.usage.cached_tokens > 100
        talk += [reply.message(), {"role": "user", "content": "Count from 2 to 4."}]


def test_reading_and_loading_are_reported() -> None:
    loaded: list[tuple[int, int]] = []
    read: list[tuple[int, int]] = []
    with strata.load(process=True, on_load=lambda *now: loaded.append(now)) as model:
        list(model.stream_complete("1, 2, 3", max_tokens=1, on_prompt=lambda *now: read.append(now)))
        count = len(model.tokenize("1, 2, 3"))
        assert model.config.name == model.name == "Pebble"
    assert loaded == sorted(loaded)
    assert loaded[-1][0] == loaded[-1][1] > 10**6
    assert read[-1] == (count, count)
    with pytest.raises(EngineError):
        model.complete("Hi")


def test_errors_are_those_of_a_model_inside(beside, tmp_path) -> None:
    with pytest.raises(RequestError, match="the prompt has"):
        beside.stream_chat("1 " * 5000)
    with pytest.raises(RequestError, match="temperature"):
        beside.stream_chat("Hi", temperature=-1)
    with pytest.raises(RequestError, match="the grammar"):
        beside.chat("Hi", grammar={"type": "regex", "regex": "("})
    with pytest.raises(GgufError, match=r"none\.gguf"):
        strata.load(tmp_path / "none.gguf", process=True)
    with pytest.raises(RequestError, match="unknown scheduler value 'slotz'"):
        strata.load(process=True, slotz=3)
    with pytest.raises(RequestError, match="slots must be from 1 to 8"):
        strata.load(slots=9)
    with pytest.raises(RequestError, match="slots must be a number, not 'a'"):
        strata.load(slots="a")
    with pytest.raises(RequestError, match="folder must be a path, not 5"):
        strata.load(folder=5)
    path, *_ = write_tiny(tmp_path / "m.gguf", tensors={"output.weight": tiny_tensors()["output.weight"]})
    with pytest.raises(ModelError, match=r"m\.gguf: tensor token_embd\.weight is missing"):
        strata.load(path, process=True)


def test_an_answer_that_is_left_or_cancelled_ends(beside) -> None:
    events = beside.stream_chat("Count from 1 to 90.", thinking=False)
    next(events)
    events.close()
    polls = iter(range(10**6))
    *_, last = beside.stream_chat("Count from 1 to 90.", thinking=False, cancelled=lambda: next(polls) > 3)
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"
    assert beside.source.status.running == beside.source.status.waiting == 0


def test_an_engine_that_is_killed_fails_its_answer_and_is_started_again(beside) -> None:
    events = beside.stream_chat("Count from 1 to 90.", thinking=False)
    next(events)
    os.kill(beside.source.status.pid, signal.SIGKILL)
    with pytest.raises(EngineError) as caught:
        list(events)
    assert caught.value.kind is Kind.ENGINE_DIED
    assert beside.chat("Count from 1 to 3.", thinking=False).text == "1, 2, 3"


def test_more_than_there_is_means_all(beside) -> None:  # case G02
    reply = beside.chat("Count from 1 to 3.", thinking=False, max_tokens=10**30, top_k=10**30, penalty_window=10**30)
    assert reply.text == "1, 2, 3"


def test_a_folder_may_be_a_path(tmp_path) -> None:
    with strata.load(process=True, folder=tmp_path / os.fsdecode(b"caf\xe9")) as model:
        assert model.chat("Count from 1 to 3.", thinking=False).text == "1, 2, 3"
    assert any((tmp_path / os.fsdecode(b"caf\xe9")).iterdir())


def test_nothing_is_left_when_it_is_closed() -> None:
    def engines() -> list[psutil.Process]:
        running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
        return [child for child in running if "strata.worker" in child.cmdline()]

    before = engines()
    model = strata.load(process=True)
    assert len(engines()) == len(before) + 1
    model.close()
    model.close()
    assert engines() == before
