"""Kill the engine's process with signal 9 in the middle of answers, again and again: what is lost?

    python tools/kills.py [--times 50] [--json bench/results/kills.json]

Pebble answers a question, and its conversation is kept in a folder. Then, each time: a long answer is begun, another
request waits, the process is killed at a random moment. The long answer must fail with the reason, the waiting one be
answered, and the kept conversation go on from its files with the text that a fresh model gives.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

QUESTION = {"role": "user", "content": "Count from 3 to 12."}
FOLLOW_UP = {"role": "user", "content": "Count from 2 to 4."}
LONG = "Count from 1 to 90."
SHORT = "Count from 5 to 7."


def kill_again_and_again(folder: Path, times: int, seed: int = 1) -> dict[str, Any]:
    """Do it so many times, and count what happened; an AssertionError if anything was lost or damaged."""
    import strata
    from strata.worker import EngineError, Kind

    with strata.load() as fresh:
        first = fresh.chat([QUESTION], thinking=False)
        turns = [QUESTION, first.message(), FOLLOW_UP]
        expected, short = fresh.chat(turns, thinking=False).text, fresh.chat(SHORT, thinking=False).text
    dice = random.Random(seed)
    began = time.monotonic()
    cached = []
    with strata.load(process=True, folder=str(folder), reserve=0, slots=1) as model:
        client: Any = model.source
        assert model.chat([QUESTION], thinking=False).text == first.text
        client.restart()  # in order: what is kept is in files now
        client.wait_ready()
        for _ in range(times):
            running = model.stream_chat(LONG, thinking=False)
            next(running)
            waiting = model.stream_chat(SHORT, thinking=False)
            time.sleep(dice.random() * 0.1)
            os.kill(client.status.pid, signal.SIGKILL)
            kind = None
            try:
                for _ in running:
                    pass
            except EngineError as error:
                kind = error.kind
            assert kind is Kind.ENGINE_DIED, f"the answer ended with {kind}"
            assert strata.api.reply.gather(waiting).text == short, "the waiting request was lost"
            reply = model.chat(turns, thinking=False)
            assert reply.text == expected, f"{reply.text!r} instead of {expected!r}"
            cached.append(reply.usage.cached_tokens)
            stats = client.ask_stats().result(10).values
            assert stats["refused"] == 0, "a stored part could not be used"
        assert client.status.restarts == times
    return {
        "kills": times,
        "running requests failed with engine_died": times,
        "waiting requests answered": times,
        "second turns with the right text": times,
        "fewest tokens they had from files": min(cached),
        "stored parts refused": 0,
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    """Kill, print, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_again_and_again(Path(folder), arguments.times)
    result["command"] = f"python tools/kills.py --times {arguments.times} --json {arguments.json}"
    print(json.dumps(result, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
