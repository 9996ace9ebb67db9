import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from strata.engine import Finish, FinishReason, NotFiniteError, Sampling, Token, generate
from strata.errors import RequestError
from strata.model import Network, load_config, load_weights
from strata.model.network import PASS_ROWS
from strata.ops import bind
from support.tiny import SETTINGS, MemoryDirectory, metadata, tensors

GREEDY = Sampling()
PROMPT = [5, 17, 300, 42, 0, 9, 8, 7]


@functools.cache
def tiny() -> Network:
    config = load_config(metadata(SETTINGS["other"]))
    weights = load_weights(MemoryDirectory(tensors("other")), config)
    return Network(config, weights, bind("cpu", config))


class Scripted:
    """A network that predicts a given list of tokens by absolute position, and keeps a record of its passes."""

    def __init__(self, script: dict[int, int], context: int = 64) -> None:
        self.config = SimpleNamespace(context=context, V=100)
        self.script = script
        self.passes: list[int] = []

    def new_state(self) -> SimpleNamespace:
        return SimpleNamespace(length=0, ids=[])

    def read(self, state, ids):
        self.passes.append(len(ids))
        self.commit(state, SimpleNamespace(ids=ids), len(ids))
        return torch.arange(state.length - len(ids) + 1, state.length + 1)[:, None]

    def window(self, batch):
        assert [len(ids) for _, ids in batch] == [1]
        return [SimpleNamespace(ids=ids, residual=torch.tensor([[state.length + 1]])) for state, ids in batch]

    def commit(self, state, done, n) -> None:
        state.ids += done.ids[:n]
        state.length += n

    looks, pass_rows, miss = False, PASS_ROWS, 0.0

    def decide(self, done, rules) -> None:
        """The host chooses."""

    def met(self):
        return None

    def predictions(self, passes):
        return self.logits(torch.cat([done.residual for done in passes])).numpy()

    def logits(self, row):
        logits = torch.zeros(1, self.config.V)
        logits[0, self.script.get(int(row), 1)] = 5.0
        return logits


def ids(events: list[Token | Finish]) -> list[int]:
    return [event.id for event in events if isinstance(event, Token)]


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=2.0, top_k=50, top_p=0.9, seed=3)], ids=str)
def test_tokens_equal_a_loop_written_out_over_the_network(sampling) -> None:
    network = tiny()
    events = list(generate(network, network.new_state(), PROMPT, sampling, max_tokens=12))
    expected: list[int] = []
    state = network.new_state()
    residual = network.read(state, PROMPT)
    for _ in range(12):
        logits = network.logits(residual[-1:])[0]
        if sampling.greedy:
            token = int(logits.argmax())
            logprob = float(torch.log_softmax(logits.double(), 0)[token])
            assert events[len(expected)].logprob == pytest.approx(logprob, abs=1e-12)
        else:
            token = reference_draw(logits.double().numpy(), sampling, len(PROMPT) + len(expected))
        expected.append(token)
        done = network.window([(state, [token])])[0]
        network.commit(state, done, 1)
        residual = done.residual
    assert ids(events) == expected
    assert events[-1] == Finish(FinishReason.LENGTH, 12)


def reference_draw(logits: np.ndarray, sampling: Sampling, position: int) -> int:
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[: sampling.top_k]
    p = np.exp((logits[order] - logits.max()) / sampling.temperature)
    p /= p.sum()
    kept = next(n for n in range(1, len(p) + 1) if p[:n].sum() >= sampling.top_p)
    u = np.random.Generator(np.random.Philox(counter=position - 1, key=sampling.seed)).random()
    return order[next(i for i in range(kept) if p[: i + 1].sum() > u * p[:kept].sum())]


def test_a_long_prompt_is_read_in_the_passes_of_one_call() -> None:
    network = Scripted({})
    network.config.context = 4000
    state = network.new_state()
    list(generate(network, state, [1] * 100, GREEDY, max_tokens=1))
    progress: list[tuple[int, int]] = []
    list(generate(network, state, [1] * 1000, GREEDY, max_tokens=1, on_prompt=lambda *now: progress.append(now)))
    assert network.passes == [100, PASS_ROWS - 100, PASS_ROWS, 1100 - 2 * PASS_ROWS]
    assert progress == [(0, 1000), (412, 1000), (924, 1000), (1000, 1000)]


def test_the_state_holds_all_but_the_last_token() -> None:
    network = Scripted({2: 7, 3: 8, 4: 9})
    state = network.new_state()
    events = list(generate(network, state, [4, 5], GREEDY, max_tokens=3))
    assert ids(events) == [7, 8, 9]
    assert state.ids == [4, 5, 7, 8]


def test_a_stop_token_ends_without_being_an_event() -> None:
    network = Scripted({2: 7, 3: 50})
    events = list(generate(network, network.new_state(), [4, 5], GREEDY, stop_ids={50, 51}, max_tokens=2))
    assert ids(events) == [7]
    assert events[-1] == Finish(FinishReason.STOP, 2, 50)


@pytest.mark.parametrize("room", [1, 5])
@pytest.mark.parametrize("asked", [0, 1, None, 2**63], ids=lambda extra: f"extra-{extra}")
def test_the_context_is_filled_to_the_last_place(room, asked) -> None:  # case O03
    network = Scripted({}, context=64)
    most = None if asked is None else room + asked
    events = list(generate(network, network.new_state(), [1] * (64 - room), GREEDY, max_tokens=most))
    assert len(ids(events)) == room
    assert events[-1] == Finish(FinishReason.LENGTH, room)


@pytest.mark.parametrize("length", [64, 65, 5000])
def test_a_prompt_without_room_is_refused_before_anything_is_read(length) -> None:  # cases O01, O03
    network = Scripted({}, context=64)
    with pytest.raises(RequestError, match=f"{length} tokens.*context holds 64 "):
        generate(network, network.new_state(), [1] * length, GREEDY)
    assert not network.passes


def test_earlier_tokens_count_against_the_context() -> None:
    network = Scripted({}, context=64)
    state = network.new_state()
    list(generate(network, state, [1] * 40, GREEDY, max_tokens=1))
    with pytest.raises(RequestError, match="24 tokens behind 40 earlier ones"):
        generate(network, state, [1] * 24, GREEDY)
    assert len(ids(list(generate(network, state, [1] * 23, GREEDY)))) == 1


@pytest.mark.parametrize("most", [0, -1, 1.0, True, "8"], ids=repr)
def test_max_tokens_must_be_a_positive_integer(most) -> None:
    network = Scripted({})
    with pytest.raises(RequestError, match="max_tokens must be an integer of at least 1, not"):
        generate(network, network.new_state(), [1], GREEDY, max_tokens=most)


@pytest.mark.parametrize("prompt", [[], [1, 100], [-1]], ids=repr)
def test_a_prompt_that_cannot_be_read_is_refused_at_once(prompt) -> None:
    network = Scripted({})
    with pytest.raises(RequestError, match=r"prompt is empty|token id (100|-1) is outside the vocabulary of 100"):
        generate(network, network.new_state(), prompt, GREEDY)


@pytest.mark.parametrize(("asked_before", "passes", "tokens"), [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 3, 1), (4, 3, 2)])
def test_cancelling_ends_between_passes_and_windows(asked_before, passes, tokens) -> None:
    network = Scripted({}, context=4000)
    calls = iter(range(100))
    events = list(
        generate(network, network.new_state(), [1] * 1030, GREEDY, cancelled=lambda: next(calls) >= asked_before)
    )
    assert len(network.passes) == passes
    assert len(ids(events)) == tokens
    assert events[-1] == Finish(FinishReason.CANCELLED, tokens)


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    network = Scripted({})
    events = generate(network, network.new_state(), [1], GREEDY)
    assert not network.passes
    next(events)
    assert network.passes == [1]


def test_banned_ids_do_not_appear() -> None:
    network = Scripted({1: 90, 2: 90})
    events = list(generate(network, network.new_state(), [4], GREEDY, max_tokens=2, banned=range(88, 100)))
    assert ids(events) == [0, 0]


def test_numbers_that_are_not_finite_end_the_request() -> None:  # case P02
    network = Scripted({})
    healthy = network.logits
    network.logits = lambda row: healthy(row) * (float("nan") if int(row) == 3 else 1.0)  # type: ignore[method-assign]
    events = generate(network, network.new_state(), [1], GREEDY, max_tokens=9)
    assert [next(events).id for _ in range(2)] == [1, 1]
    with pytest.raises(NotFiniteError, match="position 3"):
        next(events)
