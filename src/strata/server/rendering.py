"""From what is asked to what an engine is told."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strata.errors import RequestError
from strata.server.ask import Ask
from strata.server.effort import NEUTRAL, at_the_end
from strata.server.errors import bad
from strata.server.length import check_length, texts_of, too_long
from strata.server.options import Options
from strata.server.served import Served
from strata.text import Control, Prompt, Stops
from strata.worker import Budget, Grammar, Ready, Submit, values

_MOST_SEED = 1 << 64
MOST_STOPS = 64
"""Stop strings of a request: each costs time with every character."""

LONGEST_STOPS = 1 << 16
"""Characters of all of them together: each costs time before the first token."""

_CLOSING = "\n</think>\n\n"
"""What ends a thought that has used up its budget: what the template writes behind one."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer to compute.

    Attributes:
        submit: for the engine.
        inside: whether the prompt ends inside a think block.
        parsed: whether the answer is a chat turn, to be taken apart.
    """

    submit: Submit
    inside: bool
    parsed: bool


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt.

    Attributes:
        ids: tokens.
        marks: positions worth a checkpoint.
        inside: whether it ends inside a think block.
    """

    ids: tuple[int, ...]
    marks: tuple[int, ...] = ()
    inside: bool = False


def turns(served: Served, ask: Ask, options: Options) -> list[Turn]:
    """Everything the engine has to compute, checked as far as that needs no engine.

    Raises:
        ApiError: the prompt does not fit.
        RequestError: a value makes no sense.
        TextError: the conversation cannot be rendered.
    """
    ready = served.demand()
    chat = ask.messages is not None
    if ask.messages is not None:
        check_length(texts_of(ask.messages), served.tokenizer, ready.context, "messages")
    prompts = [render(served, ask, options)] if chat else [Rendered(ids) for ids in ask.prompts]
    sampling = _sampling(ask, ready, options)
    _check_stops(ask.stop)
    _check_count(len(prompts) * ask.n, ready, "n" if ask.n > 1 else "prompt")
    made: list[Turn] = []
    for prompt in prompts:
        most = _most(prompt, ask, ready, options)
        if chat and prompt.inside and ask.thinking.budget is not None and most <= _closing(served) + 1:
            # There is no room to close the block and to say something, so it is closed from the start.
            prompt = render(served, replace(ask, thinking=replace(ask.thinking, on=False)), options)  # noqa: PLW2901
            most = _most(prompt, ask, ready, options)
        grammar = _grammar(served, ask, inside=prompt.inside)
        budget = _budget(served, ask, most) if prompt.inside and ask.thinking.budget is not None else None
        for number in range(ask.n):
            submit = Submit(
                prompt=prompt.ids,
                sampling={**sampling, "seed": _seed(sampling["seed"], number)},
                drafting={**options.drafting, "head": ready.limits.head} if options.drafting else {},
                max_tokens=most,
                grammar=grammar,
                logprobs=ask.logprobs,
                priority=ask.priority,
                marks=prompt.marks,
                client=ask.client,
                budget=budget,
            )
            values.check(submit, ready)
            made.append(Turn(submit, prompt.inside, chat))
    return made


def _check_count(count: int, ready: Ready, name: str) -> None:
    bound = ready.limits.conversations + ready.limits.queue
    if count > bound:
        raise bad(
            f"the request asks for {count} answers, but {ready.limits.conversations} can be under way and "
            f"{ready.limits.queue} wait; ask for {bound} at most",
            name,
        )


def _most(prompt: Rendered, ask: Ask, ready: Ready, options: Options) -> int:
    """Tokens that an answer may have."""
    room = _room(prompt.ids, ready)
    wanted = ask.max_tokens or options.max_tokens
    return room if wanted is None else min(wanted, room)


def _closing(served: Served) -> int:
    """Tokens that end a thought whose budget is used up."""
    return len(served.tokenizer.encode(_CLOSING))


def counted(served: Served, ask: Ask, options: Options) -> int:
    """Tokens of the prompt of a request, which is checked as far as that needs no engine.

    Raises:
        RequestError: a value makes no sense.
        TextError: the conversation cannot be rendered.
    """
    given = {name: value for name, value in ask.sampling.items() if value is not None and name != "seed"}
    values.check_sampling(given)
    _check_stops(ask.stop)
    return len(render(served, ask, options).ids)


def _check_stops(stop: Any) -> None:
    if isinstance(stop, list) and len(stop) > MOST_STOPS:
        raise bad(f"{len(stop)} stop strings are more than the {MOST_STOPS} that are looked for", "stop")
    size = sum(len(one) for one in (stop if isinstance(stop, list) else [stop]) if isinstance(one, str))
    if size > LONGEST_STOPS:
        raise bad(f"the stop strings have {size} characters, more than the {LONGEST_STOPS} that are looked for", "stop")
    Stops(stop)


def render(served: Served, ask: Ask, options: Options) -> Rendered:
    """The prompt of a conversation.

    Raises:
        ApiError: the model has no chat template.
        TextError: the messages cannot be rendered.
    """
    if served.template is None:
        raise bad("this model has no chat template; /v1/completions takes raw prompts")
    assert ask.messages is not None
    messages, effort = _placed(served, ask, options)
    prompt = served.template.render(
        messages,
        tools=ask.tools.declared or None,
        thinking=ask.thinking.on,
        effort=effort,
        preserve_thinking=ask.thinking.kept,
    )
    ids = served.tokenizer.encode_prompt(prompt)
    marks = _marks(served, prompt, ids, ask)
    if options.effort_last:
        marks += _last_question(served, ids, said=messages is not ask.messages)
    return Rendered(tuple(ids), tuple(sorted(set(marks))), prompt.inside_thinking)


def _placed(served: Served, ask: Ask, options: Options) -> tuple[Sequence[Mapping[str, Any]], str | None]:
    """Messages and the effort for the template."""
    assert ask.messages is not None
    effort = ask.thinking.effort
    if options.effort_last and ask.thinking.on and served.efforts is not None:
        sentence = served.efforts.sentence(effort)
        if sentence:
            return at_the_end(ask.messages, sentence), NEUTRAL
    return ask.messages, effort


def _last_question(served: Served, ids: Sequence[int], *, said: bool) -> tuple[int, ...]:
    """Where the effort's turn or the answer begins: the conversation's next prompt is the same up to there."""
    start = served.tokenizer.id_of("<|im_start|>")
    places = [place for place, token in enumerate(ids) if token == start and place > 0]
    return tuple(places[-2:-1] if said else places[-1:])


def _marks(served: Served, prompt: Prompt, ids: Sequence[int], ask: Ask) -> tuple[int, ...]:
    """Where the system turn ends, and where its text begins behind the tools: what conversations share.

    The text of a system turn may hold a date or a state of things that changes while the tools before it do not.
    """
    assert ask.messages is not None
    if not (ask.tools.declared or ask.messages[0].get("role") in {"system", "developer"}):
        return ()
    pieces = prompt.pieces
    ends = [place for place, piece in enumerate(pieces) if isinstance(piece, Control)]
    if len(ends) < 3:
        return ()
    tokenizer = served.tokenizer
    whole = tokenizer.encode_prompt(Prompt(pieces[: ends[2]]))
    found = {len(whole)} if ids[: len(whole)] == whole else set()
    head = pieces[ends[0] + 1]
    if ask.tools.declared and isinstance(head, str) and "</tools>" in head:
        close = head.rindex("</tool_call>") + len("</tool_call>") if "</tool_call>" in head else 0
        first = tokenizer.encode_prompt(Prompt((*pieces[: ends[0] + 1], head[:close])))
        shared = next((n for n, (a, b) in enumerate(zip(first, ids, strict=False)) if a != b), len(first))
        found.add(shared)
    return tuple(sorted(mark for mark in found if 0 < mark < len(ids)))


def _room(ids: Sequence[int], ready: Ready) -> int:
    if not ids:
        raise bad("the prompt is empty; it needs at least one token", "prompt")
    room = ready.context - len(ids)
    if room < 1:
        raise too_long(str(len(ids)), ready.context)
    return room


def _sampling(ask: Ask, ready: Ready, options: Options) -> dict[str, Any]:
    given = {name: value for name, value in ask.sampling.items() if value is not None}
    bias = given.get("logit_bias")
    if isinstance(bias, Mapping):
        outside = next((token for token in bias if not 0 <= token < ready.vocabulary), None)
        if outside is not None:
            raise bad(f"logit_bias: token id {outside} is outside the vocabulary of {ready.vocabulary}", "logit_bias")
    seed = given.pop("seed", options.seed)
    given["seed"] = secrets.randbits(64) if seed is None else seed % _MOST_SEED
    merged = {**ready.sampling, **options.sampling, **given}
    values.check_sampling(merged)
    for name, most in (("top_k", ready.vocabulary), ("penalty_window", ready.context)):
        if merged.get(name, -1) > most:
            merged[name] = -1  # more than there are is all of them, and no message can hold every integer
    return merged


def _seed(seed: int, number: int) -> int:
    """The seed of each of several answers: its own, and the same every time."""
    if number == 0:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest())


def _grammar(served: Served, ask: Ask, *, inside: bool) -> Grammar | None:
    if ask.form is None and not ask.tools.must:
        return None
    from strata.text.grammar import Grammar as Form  # takes a while, and most answers have no grammar
    from strata.text.grammar import calls_grammar, check_grammar

    form = Form.of(ask.form)
    tools = ask.tools
    if form is None and not tools.must:
        return None
    if tools.must:
        form = None  # a call is what is asked for
    calls = ""
    if tools.declared:
        calls = calls_grammar(tools.declared, served.tokenizer, only=tools.only, parallel=tools.parallel)
    check_grammar(form, thinking=inside, calls=calls)
    after = None
    if inside:
        after = served.tokenizer.id_of("</think>")
        if after is None:
            raise RequestError("the model has no token for the end of thinking; ask for the form without thinking")
    return Grammar("calls" if form is None else form.kind.value, "" if form is None else form.source, after, calls)


def _budget(served: Served, ask: Ask, most: int) -> Budget | None:
    """The thinking budget, with room for an answer behind it."""
    tokenizer = served.tokenizer
    end = tokenizer.id_of("</think>")
    if end is None:
        raise RequestError("the model has no token for the end of thinking, so a budget for it cannot be kept")
    closing = tuple(tokenizer.encode(_CLOSING))
    assert ask.thinking.budget is not None
    room = max(0, most - len(closing) - answer_room(most))
    opener, closer = tokenizer.id_of("<tool_call>"), tokenizer.id_of("</tool_call>")
    call = (opener, closer) if opener is not None and closer is not None and ask.tools.declared else None
    return Budget(min(ask.thinking.budget, room), closing, end, call)


def answer_room(most: int) -> int:
    """Tokens of an answer that a thinking budget leaves: a quarter, 1024 at most."""
    return max(1, min(1024, most // 4))
