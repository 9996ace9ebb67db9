"""How much of an agent's conversation is read again, by what changes in it and how the server renders it.

    python bench/rereading.py [--turns 8] [--json bench/results/rereading.json]

One conversation in the shape of Claude Code's requests: a header line with another number each time, tools, a date in
the system text that changes once, a result of a tool or a question a turn. Arms: nothing changes; what changes by
itself (number and date); and with it another effort at every other turn, said at the start or at the end. Ratios are
to what is read when nothing changes: the tokens that are new in each prompt.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [
    {
        "name": "Read",
        "description": "Reads a file from the disk and returns it with line numbers.",
        "input_schema": PATH,
    },
    {
        "name": "List",
        "description": "Lists the files in a folder, newest first, hidden ones too.",
        "input_schema": PATH,
    },
]
RULES = "You are an agent that works on code. Read before you write. Be brief and say what you did. " * 4


def messages(turn: int) -> list[dict[str, Any]]:
    """The conversation up to its turn of this number, from 1."""
    found: list[dict[str, Any]] = [{"role": "user", "content": "Find the place where the counter is set to 17."}]
    for number in range(1, turn):
        use = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": f"src/part{number}.py"}}
        thought = {"type": "thinking", "thinking": f"I look at part {number}.", "signature": ""}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"{number}: counter = {number}\n" * 8}
        found += [{"role": "assistant", "content": [thought, use]}, {"role": "user", "content": [result]}]
    return found


def body(turn: int, *, changes: bool, efforts: bool) -> dict[str, Any]:
    """One request."""
    nonce, day = (turn, 1 if turn < 5 else 2) if changes else (0, 1)
    system = [
        f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={nonce:05x};",
        f"Today is day {day}.",
        RULES,
    ]
    effort = "high" if not efforts or turn % 4 < 2 else "low"
    return {
        "system": [{"type": "text", "text": text} for text in system],
        "messages": messages(turn),
        "tools": TOOLS,
        "output_config": {"effort": effort},
        "max_tokens": 1,
    }


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    arms = {
        "nothing changes": ({"changes": False, "efforts": False}, False),
        "number and date": ({"changes": True, "efforts": False}, False),
        "and effort, at the start": ({"changes": True, "efforts": True}, False),
        "and effort, at the end": ({"changes": True, "efforts": True}, True),
    }
    rows = []
    for name, (what, last) in arms.items():
        read = [turn_read(body(turn, **what), last=last, fresh=turn == 1) for turn in range(1, arguments.turns + 1)]
        rows.append(
            {"conversation": name, "prompt": sum(p for p, _ in read), "read": sum(r for _, r in read), "turns": read}
        )
    needed = rows[0]["read"]
    print(f"{'conversation':26} {'prompts':>8} {'read':>6} {'of needed':>9}   read at each turn")
    for row in rows:
        each = " ".join(f"{r:4}" for _, r in row["turns"])
        print(f"{row['conversation']:26} {row['prompt']:8} {row['read']:6} {row['read'] / needed:9.2f}   {each}")
    if arguments.json is not None:
        told = {
            "command": "python bench/rereading.py",
            "model": "pebble",
            "unit": "tokens (prompt, read)",
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


_engines: list[Any] = []


def turn_read(request: dict[str, Any], *, last: bool, fresh: bool) -> tuple[int, int]:
    """Tokens of a request's prompt, and those that were read; `fresh` forgets everything first."""
    from strata.loading.files import ModelFile
    from strata.server import Options
    from strata.server.dialects.anthropic.request import read_message
    from strata.server.rendering import turns
    from strata.server.served import Served
    from strata.worker import Client, Finished, ModelEngine

    if fresh:
        for engine in _engines:
            engine.close()
        _engines[:] = [Client(ModelEngine("pebble", threads=1, options={"step": 64, "rows": 64}))]
    client = _engines[0]
    client.wait_ready()
    served = Served(client, ModelFile.open("pebble"), "pebble")
    while served.known is None:
        pass
    options = Options(effort_last=last)
    (turn,) = turns(served, read_message(request, options, ""), options)
    usage = next(event.usage for event in client.submit(turn.submit) if isinstance(event, Finished))
    return usage.prompt, usage.prompt - usage.cached


if __name__ == "__main__":
    main()
