"""One window over running answers: guess, run, verify, commit."""

import time
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from strata.engine.choice import Token
from strata.engine.drafting.drafter import Guesses
from strata.engine.drafting.options import DEEPEST
from strata.engine.events import Event, FinishReason
from strata.engine.generation import Generation
from strata.engine.trace import Trace, WindowRecord
from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.model import Network
    from strata.model.decision import Decision, Undecided
    from strata.model.ops import Pass
    from strata.model.tally import Tally


def step(network: "Network", generations: Sequence[Generation], *, trace: Trace | None = None) -> list[list[Event]]:
    """Compute one window.

    Tokens are guessed where there is one generation only: then a window's rows are its guesses; else each has one row.
    A generation whose time is up, whose drafter or chooser breaks, or that computes no numbers ends by itself, and the
    others get the bytes they would have got alone.

    Args:
        network: the model of all of them.
        generations: 1-8 that have read their prompts; finished ones are passed over.
        trace: where to note the window.

    Returns:
        Events of each.

    Raises:
        RequestError: too many generations, or one that has not read its prompt.
    """
    if not 1 <= len(generations) <= DEEPEST + 1:
        raise RequestError(f"a window takes 1 to {DEEPEST + 1} generations, not {len(generations)}")
    if any(g.reading and not g.finished for g in generations):
        raise RequestError("a generation that has not read its prompt cannot be in a window")
    over = [g.finished is not None for g in generations]
    tokens = _run(network, [g for g in generations if not g.finished], trace)
    return [[*tokens.get(id(g), ()), *(() if before else g.ended)] for g, before in zip(generations, over, strict=True)]


def _run(network: "Network", generations: Sequence[Generation], trace: Trace | None) -> dict[int, list[Token]]:
    """Tokens by the id of their generation; those that end say so themselves."""
    clock = time.perf_counter_ns
    began = clock()
    for generation in generations:
        if generation.overdue:
            generation.end(FinishReason.TIMEOUT)
    guesses = Guesses()
    if len(generations) == 1 and not generations[0].finished:
        guesses = generations[0].guess()
    going = [generation for generation in generations if not generation.finished]
    if not going:
        return {}
    guessed = clock()
    rows = 1 + len(guesses.ids)
    passes = network.window([(g.state, [g.newest, *guesses.ids]) for g in going])
    outcomes = _decided(network, going, passes, guesses)
    logits = None if outcomes else network.predictions(passes)
    fetched = sum(g.fetched for g in going)
    ran = clock()
    if outcomes:
        verdicts = [
            g.verify_found(done, one, guesses) if isinstance(one, list) else g.decided(done, one)
            for g, done, one in zip(going, passes, outcomes, strict=True)
        ]
    else:
        assert logits is not None
        verdicts = [g.verify(logits[i * rows : (i + 1) * rows], guesses) for i, g in enumerate(going)]
    verified = clock()
    accepted, tokens, before = 0, {}, sum(generation.tokens for generation in going)
    committed = [bool(outcomes) and not isinstance(one, list) for one in outcomes or going]
    for generation, done, verdict, already in zip(going, passes, verdicts, committed, strict=True):
        if verdict is not None:
            seconds = (clock() - guessed) / 1e9 if len(going) == 1 else None
            accepted += generation.commit(done, verdict, guesses, seconds, committed=already)
            tokens[id(generation)] = generation.take(verdict)
    if trace is not None:
        draft, run, choosing, commit = ((b - a) / 1e3 for a, b in pairwise((began, guessed, ran, verified, clock())))
        drafted = {guesses.source: len(guesses.ids)} if guesses.ids else {}
        met = network.met()
        record = WindowRecord(
            began,
            rows * len(going),
            len(going),
            drafted,
            accepted,
            _found(met),
            {} if met is None else {"link": met.link, "host": met.host},
            draft_us=draft,
            run_us=run,
            verify_us=choosing,
            commit_us=commit,
            wait_us=trace.waited(began),
            tokens=sum(generation.tokens for generation in going) - before,
            fetched=sum(generation.fetched for generation in going) - fetched,
            layers=array("f", [(at - guessed) / 1e3 for at in passes[0].layers]),
            host_wait_us=0.0 if met is None else met.waited_us,
            disk_wait_us=0.0 if met is None else met.read_us,
        )
        trace.add(record)
    return tokens


def _decided(
    network: "Network", generations: Sequence[Generation], passes: "Sequence[Pass]", guesses: Guesses
) -> "Sequence[Decision | Undecided] | None":
    """What the device chose and committed, or, of answers for which it cannot, the tokens that it found may be chosen.

    None where the host needs all predictions.
    """
    done = [(g.state, one) for g, one in zip(generations, passes, strict=True)]
    greedy = [g.greedy for g in generations if g.greedy]
    if len(greedy) == len(generations) and (decisions := network.decide(done, greedy)):
        return decisions
    if not network.looks:
        return None
    drawn = [rule for rule in (g.drawing(guesses) for g in generations) if rule is not None]
    if len(drawn) == len(generations) and (outcomes := network.draw(done, drawn)):
        return outcomes
    wishes = [wish for wish in (g.wish(guesses) for g in generations) if wish is not None]
    return network.look(passes, wishes) if len(wishes) == len(generations) else None


def _found(met: "Tally | None") -> dict[str, int]:
    """Experts by where they were found; nothing where all have one place, and no disk where none was read."""
    if met is None:
        return {}
    found = {"vram": met.resident, "ram": met.link + met.host - met.ssd}
    return found | {"ssd": met.ssd} if met.ssd else found
