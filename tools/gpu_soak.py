"""Conversations on a model in tiers for a long time: are the bytes those of all experts in VRAM, and is memory flat?

    python tools/gpu_soak.py --minutes 6 --json bench/results/tiers-soak.json         # on a GPU
    python tools/gpu_soak.py --minutes 30 --device cpu                                # in Triton's interpreter

A tree of conversations is answered once by the model with all experts on the device: greedy and with seeds, with and
without guesses. Then the same file is loaded with a third of them in slots. Four clients walk through the tree, with
prompts that begin alike, go on from one another and come again; three of ten requests are cancelled, while they wait,
in their prompt or in their answer. Slots come and go every few seconds, experts move into them as windows visit them,
and now and then a message to the host is spoilt, which ends the conversations of its window and no other. Every token
that is said is compared: its id, its log-probability and the likeliest ones with theirs.

Memory of the process and of the device is looked at once a second. It may not grow from the first third to the last
(without the first tenth), each time at the same number of slots. What is read, compiled, loaded and answered once is
before the minutes. On a GPU it takes the file given, or one of four layers in the released shapes, written to
--scratch; in the interpreter a model of two small layers, all of whose experts RAM holds. Exit code 1 if a promise is
broken.

Needs torch, Triton, NumPy and Numba.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

ENDING = 15.0
"""Seconds that `--within` leaves for what is under way, and for the table."""


def main() -> int:
    """Soak, print, keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument(
        "--within", type=float, default=math.inf, help="seconds for everything: fewer minutes, if need be"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: in Triton's interpreter")
    parser.add_argument("--model", type=Path, help="a file that fits the device whole; `pebble` for the bundled one")
    parser.add_argument("--share", type=float, default=1 / 3, help="of the experts, with slots at the start")
    parser.add_argument("--ram", type=float, help="share of the experts that RAM holds; others are read from the file")
    parser.add_argument("--clients", type=int, default=5, help="four conversations run; the others wait")
    parser.add_argument("--resize", type=float, default=3.0, help="seconds from one size to the next; 0 for never")
    parser.add_argument("--fault", type=float, default=20.0, help="seconds from one fault to the next; 0 for never")
    parser.add_argument("--kept", type=float, help="MB for conversations that are kept; None for a dozen")
    parser.add_argument("--threads", type=int, help="that compute experts without a slot")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brief", action="store_true", help="as little as a test waits for")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.until = time.monotonic() + given.within - ENDING
    if given.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    import torch

    from tiersoak.run import run

    if given.device == "cpu":
        torch.set_num_threads(1)
    with torch.inference_mode():
        found = run(given)
    _show(found)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(one["kept"] is False for one in found["promises"]))


def _show(found: dict[str, Any]) -> None:
    numbers = found["numbers"]
    width = max(map(len, numbers))
    for name, value in numbers.items():
        print(f"{name:<{width}}  {value}")
    print(*found["wrong"], "", *found["told"], sep="\n")
    broken = sum(one["kept"] is False for one in found["promises"])
    print(f"\n{broken} promises are broken" if broken else "\nall promises are kept", flush=True)


if __name__ == "__main__":
    began = time.monotonic()
    status = main()
    print(f"{time.monotonic() - began:.0f} s in all")
    sys.exit(status)
