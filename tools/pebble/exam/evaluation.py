"""The whole examination of one file: abilities, the thinking switch, and draft acceptance."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pebble.data import counting, sums, talk, tools
from pebble.data.dialogue import Conversation, Message
from pebble.data.stock import Stock
from pebble.exam.engine import Candidate, Written, accepted, mark, write
from pebble.exam.teacher import sheets

_DEPTH = 3
Say = Callable[[str], None]


def _check_same_vocabulary(candidate: Candidate, stock: Stock) -> None:
    text = stock.sentences[0] + " <think> 12, 13\n\n"
    theirs = candidate.tokenizer.encode(text)
    if theirs != stock.tokenizer.encode(text).ids:
        raise ValueError("the file's tokenizer is not the prepared one: run prepare with the Python it was made with")


def _prompt(candidate: Candidate, talk_: Conversation) -> list[int]:
    messages = [m.for_template(thinking=talk_.thinking) for m in talk_.messages if m.role != "assistant"]
    prompt = candidate.template.render(
        messages, tools=talk_.tools or None, thinking=talk_.thinking, effort=talk_.effort
    )
    return candidate.tokenizer.encode_prompt(prompt)


def _mixed(rng: random.Random, stock: Stock) -> list[Message]:
    kind = rng.randrange(3)
    if kind == 0:
        return counting.test(rng, rng.randint(5, 15))
    return sums.test(rng) if kind == 1 else talk.draw(rng, stock.held_out_sentences)


def thinking_switch(candidate: Candidate, stock: Stock, count: int) -> dict[str, Any]:
    """Greedy answers with thinking on (every effort in turn) and off: one closed, non-empty block, or none at all."""
    right = {"on": 0, "off": 0}
    efforts = (None, "xhigh", "medium", "low")
    for i in range(count):
        for switch in right:
            rng = random.Random(f"switch:{i}")
            messages = _mixed(rng, stock)
            effort = efforts[i % 4] if switch == "on" else None
            asked = Conversation(messages, thinking=switch == "on", effort=effort)
            ids = write(candidate, _prompt(candidate, asked), 400).ids
            text = candidate.tokenizer.decode(ids[:-1], special=True)
            thought, closed, answer = text.partition("\n</think>\n\n")
            tidy = ids[-1] in candidate.tokenizer.eos_ids and "think>" not in (thought + answer if closed else text)
            right[switch] += tidy and bool(closed and thought.strip() and answer.strip()) == (switch == "on")
    return {"exact": right["on"] + right["off"], "documents": 2 * count, **right}


def acceptance(candidate: Candidate, stock: Stock, count: int) -> dict[str, list[tuple[int, int]]]:
    """Draft steps taken on counting, tool calls, and the model's own greedy continuation of held-out prose."""
    written: dict[str, list[Written]] = {"counting": [], "tool calls": [], "prose": []}
    for i in range(count):
        rng = random.Random(f"drafts:{i}")
        counted = Conversation(counting.test(rng, 40), thinking=i % 2 == 0)
        written["counting"].append(write(candidate, _prompt(candidate, counted), 400, _DEPTH))
        messages, offered = tools.test(rng)
        called = Conversation(messages, offered, thinking=i % 2 == 0)
        written["tool calls"].append(write(candidate, _prompt(candidate, called), 100, _DEPTH))
        at = rng.randrange(len(stock.held_out) - 100)
        written["prose"].append(write(candidate, stock.held_out[at : at + 64].tolist(), 100, _DEPTH))
    return {name: accepted(texts, _DEPTH) for name, texts in written.items()}


def evaluate(path: Path, stock: Stock, count: int, say: Say, *, exact: bool = False) -> dict[str, Any]:
    """Everything about one file; ``count`` questions per short ability, half as many per long one.

    With ``exact``, matrices are dequantised to float32.
    """
    candidate = Candidate.load(path, exact=exact)
    _check_same_vocabulary(candidate, stock)
    result: dict[str, Any] = {"file": path.name, "bytes": path.stat().st_size, "abilities": {}}
    for sheet in sheets(stock, count, seed=1):
        marks = mark(candidate, sheet)
        marks |= {"threshold": sheet.ability.threshold, "ceiling": sheet.ability.ceiling}
        result["abilities"][sheet.ability.name] = marks
        say(f"{path.name}: {sheet.ability.name}: {marks['exact']} of {marks['documents']}")
    switched = thinking_switch(candidate, stock, count // 2)
    result["abilities"]["thinking on and off as asked"] = {
        **switched,
        "threshold": 0.99,
        "ceiling": None,
        "tokens": None,
    }
    say(f"{path.name}: thinking switch: {switched}")
    result["acceptance"] = acceptance(candidate, stock, max(2, count // 8))
    say(f"{path.name}: acceptance: {result['acceptance']}")
    candidate.template.close()
    return result
