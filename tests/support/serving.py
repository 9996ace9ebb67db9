"""Requests through a scheduler, and what they give alone on a fresh network."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from strata.engine import Event, Finish, Request, Token, generate
from strata.model import Network
from strata.session.errors import StoredFileError
from strata.session.kept import kept
from strata.session.scheduler import Scheduler
from strata.session.store import Store
from support.states import differing


def answer(events: Iterable[Event]) -> list[tuple[int, float]]:
    """Ids and log-probabilities."""
    return [(event.id, event.logprob) for event in events if isinstance(event, Token)]


def ids(events: Iterable[Event]) -> list[int]:
    return [event.id for event in events if isinstance(event, Token)]


def finish(events: list[Event]) -> Finish:
    (end,) = [event for event in events if isinstance(event, Finish)]
    assert events[-1] is end
    return end


class Alone:
    """What requests give on a fresh state, without drafts; computed once each."""

    def __init__(self, network: Network) -> None:
        self.network = replace(network, drafts=False)
        self._known: dict[tuple, list[Event]] = {}

    def __call__(self, request: Request) -> list[tuple[int, float]]:
        key = (request.prompt, request.sampling, request.stop_ids, request.max_tokens)
        if key not in self._known:
            self._known[key] = list(
                generate(
                    self.network,
                    self.network.new_state(),
                    request.prompt,
                    request.sampling,
                    stop_ids=request.stop_ids,
                    max_tokens=request.max_tokens,
                )
            )
        return answer(self._known[key])


def drain(
    scheduler: Scheduler, before: Callable[[int], None] = lambda _: None, *, most: int = 20_000
) -> dict[str, list[Event]]:
    """Tick until nothing is left; `before` is called with the number of each tick."""
    found: dict[str, list[Event]] = {}
    for tick in range(most):
        before(tick)
        if scheduler.idle:
            return found
        for name, event in scheduler.tick():
            found.setdefault(name, []).append(event)
    raise AssertionError(f"not idle after {most} ticks")


def run(scheduler: Scheduler, *requests: Request) -> dict[str, list[Event]]:
    """Submit all at once."""
    for request in requests:
        scheduler.submit(request)
    return drain(scheduler)


def check_sums(store: Store) -> None:
    """What a store says of itself is what a look at its tree finds."""
    nodes = list(store._tree)
    assert store.ram_bytes == store._tree.bytes
    assert store.checkpoints == sum(node.checkpoint is not None for node in nodes)
    assert store.leaves == sum(not node.children for node in nodes)
    for most in (1, 1000):
        assert store.conversations(most) == kept(nodes, most)


def check_kept(store: Store, network: Network) -> int:
    """Every state that is kept equals a fresh reading of its tokens, byte for byte; returns how many there are."""
    check_sums(store)
    leaves = 0
    for salt, node in list(store._tree.salted()):
        assert node.pins_below == 0, "something is in use though nothing runs"
        if node.checkpoint is None:
            continue
        tokens = list(node.full())
        found = store.restore(salt, [*tokens, 0])
        if found is None:
            raise StoredFileError("a state that should be there is not")
        state, place = found
        assert place is node
        store.release(place)
        fresh = network.new_state()
        with torch.inference_mode():
            network.read(fresh, tokens)
            network.settle(fresh)
        assert differing(state, fresh) == [], f"the state behind {len(tokens)} tokens"
        leaves += 1
    return leaves
