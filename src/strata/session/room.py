"""Running conversations that a device has no memory for: taken to memory of the CPU, and back.

The oldest of the highest priority always runs; a younger one goes when they do not fit together any more, and comes
back when they do. What it goes on with is what it had, byte for byte.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.model import snapshot
from strata.model.snapshot import Checkpoint, Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from strata.model import Network, State
    from strata.session.conversation import Conversation

AHEAD = 8
"""Cells that the next window may need."""


@dataclass(frozen=True, slots=True)
class Aside:
    """A conversation's whole state in memory of the CPU."""

    spans: tuple[Span, ...]
    end: Checkpoint


def need(conversation: "Conversation") -> "tuple[State | None, int]":
    """What a conversation's next pass or window needs: the state that has some cells already, and how many in all."""
    prompt, generation = len(conversation.request.prompt), conversation.generation
    if conversation.aside is not None:
        return None, max(prompt, conversation.aside.end.length) + AHEAD
    if generation is None:
        return None, prompt + AHEAD
    return generation.state, max(prompt, generation.state.length) + AHEAD


def set_aside(network: "Network", conversation: "Conversation") -> None:
    """Free the device's memory that a conversation has.

    Raises:
        SnapshotError: its numbers are not finite; it cannot go on.
    """
    generation = conversation.generation
    if generation is None or conversation.aside is not None or generation.state.length == 0:
        return
    state = generation.state
    network.settle(state)
    whole = (snapshot.cut(state, 0, state.length, network.config.qsa.ratio),)
    conversation.aside = Aside(whole, snapshot.checkpoint(state))
    generation.state = network.new_state()


def bring_back(network: "Network", conversation: "Conversation") -> None:
    """Give a conversation its state again.

    Raises:
        RequestError: the device has no memory for it.
    """
    generation, aside = conversation.generation, conversation.aside
    if generation is None or aside is None:
        return
    state = network.new_state()
    snapshot.fill(state, aside.spans, aside.end, network.config.qsa.ratio)
    generation.state, conversation.aside = state, None


def those_with_room(
    network: "Network", running: "list[Conversation]", out: "Callable[[Conversation], None]"
) -> "list[Conversation]":
    """Which of the running conversations, the most urgent first, may go on now; `out` is called for each other one."""
    live = list(running)
    while len(live) > 1 and not network.fits([need(one) for one in live]):
        out(live.pop())
    return live
