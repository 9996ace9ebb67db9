"""Experts in tiers on a GPU, from a bare checkout: the same bytes, speed, and the bounds that bandwidths set.

    python tools/gpu_tiers.py [--only speed] [--within 540] [--json bench/results/h200-tiers.json]

*bytes*: `correct` compares 10,800 windows of 1, 2, 4 and 8 rows, eager and replayed, with 0%, a third and all of the
experts in slots, every split, slots changing between windows, byte for byte against the network that has them all; a
worker that dies and one that stalls fail their window and no other. `correct_prompts` does so for residuals of prompts
through rings of one, twelve and 96 buffers; `correct_disk` does both while most experts lie on a disk and RAM holds a
twentieth, a fifth and all of them. All on a file of four layers in the released shapes.

*speed*, on the 126-billion-parameter file of `strata.lab.synthetic` (54 GiB, written to --scratch if not there):
`bandwidths` of RAM, link, VRAM and tensor cores; `host`, the CPU's kernels on all threads; `decode` with all experts in
VRAM, none, and half (those of the last half of the layers, as a layer split places them), taking turns; `prompt_none`,
8,192 tokens without an expert in VRAM; `prompt_rings`, the same through rings of several shapes; `caps`, windows of
four rows under caps of 24 and 12 GB, planned for one conversation, with skewed routing and slots that have learned, in
turns with all experts in VRAM; `prompt_cap24`, short prompts there, and a long one that borrows from slots; `restore`,
the first token of a conversation of 32,768 tokens that is brought back from RAM and from --disk; `nodes` of
recorded windows. And only for who names it, `misses`: ways to launch what a layer misses under the larger cap.

Needs torch, Triton, NumPy and Numba. Everything runs once on the small file first, while the large one is written, so
that kernels are compiled; --warm leaves that out where it has been done. Parts run in a process of their own, each with
a time limit; what ends it is written down, and a new process goes on with the next part. Results are written after
every round, beside what earlier runs have left in the file: parts with raw rounds and what windows met, `figures`
(their medians), `bounds`, and the conditions of every run under `sessions`. Exits with 1 if a part failed.

`python tools/performance.py` writes the tables of docs/performance.md from that file.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from figures.parts import GROUPS, PARTS


def main() -> int:
    """Watch, or measure as a process that is watched."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(GROUPS), choices=[*GROUPS, *PARTS], metavar="PART",
                        help=f"of {', '.join([*GROUPS, *PARTS])}")  # fmt: skip
    parser.add_argument("--within", type=float, default=1200.0, help="seconds for everything")
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/h200-tiers.json")
    parser.add_argument("--model", type=Path, help="the large file, instead of one that is written")
    parser.add_argument("--small", type=Path, help="the small file, likewise")
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))  # noqa: S108  # memory, if there is enough
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="a folder on a disk")  # noqa: S108
    parser.add_argument("--warm", action="store_true", help="kernels are compiled already")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: in Triton's interpreter")
    parser.add_argument("--tiny", action="store_true", help="as little as the interpreter manages")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rehearse", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.model = given.model or given.scratch / "strata-synthetic.gguf"
    given.small = given.small or given.scratch / "strata-small.gguf"
    if given.worker:
        import torch

        from figures.worker import work

        with torch.inference_mode():
            return work(given)
    from figures.watch import watch

    return watch(given)


if __name__ == "__main__":
    sys.exit(main())
