"""What a window's attention layers cost behind long conversations, on a GPU: microseconds a layer, arms in turn.

    python bench/gpu_depth.py [--arm NAME=CHECKOUT[,CONSTANT=VALUE...]] [--rows 1 4 8] [--json FILE]

Twelve layers at the released model's shapes, projections to output, with a memory of their own each, in one recorded
graph; between two layers 192 MB go through the caches, as the weights of the layers between them do. What that takes by
itself is taken off. An arm is a process with the code of one checkout (this one if left empty), and constants of
`strata.ops.gpu.layers` changed (`BESIDE=0`: blocks are chosen behind the projections); `BRANCHES=0` launches all in a
row. Only one arm works at a time; in every round each takes its turn, the order turning around. Scores are those of
random keys and queries.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "src"))  # an arm finds its own checkout's first

import torch

from arms.process import Process
from strata.model import weights
from strata.model.config import Gdn, Mixer, ModelConfig, Moe, Qsa, Rope
from strata.model.forward import segments
from strata.ops.gpu import layers, upload
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.rows import Rows
from strata.ops.matvec.triton import PlaneMatrix, quantise
from strata.ops.planes import layout

DEPTHS, LAYERS, ROUNDS, REPLAYS = (0, 4096, 32_768, 131_072), 12, 7, 5
THROUGH = 24 << 20  # numbers, read and written
DEVICE = torch.device("cuda")
CONFIG = ModelConfig(
    name="depth", V=256, H=2560, S=4, r=320, eps=1e-6, context=max(DEPTHS) + 64, mixers=(Mixer.QSA,) * LAYERS,
    gdn=Gdn(16, 48, 128, 4), qsa=Qsa(24, 2, 256, 4, 128, 2048, 4), rope=Rope(64, 1e7, (11, 11, 10)),
    moe=Moe(512, 10, 640, 640), ple=None, mtp=False,
)  # fmt: skip


def _layer() -> weights.Qsa:
    """Random weights; what the products of planes are does not matter, what the indexer makes of them does."""

    def planes(n: int, width: int) -> PlaneMatrix:
        data = torch.randint(0, 60, (layout("Q5_K").nbytes(n, width),), dtype=torch.uint8, device=DEVICE)
        return PlaneMatrix("Q5_K", n, width, data)

    def floats(n: int) -> torch.Tensor:
        return (torch.randn((n, 2560), device=DEVICE) / 50).to(torch.bfloat16)

    head, index, asked = torch.ones(256, device=DEVICE), torch.ones(128, device=DEVICE), floats(640)
    parts: dict[str, Any] = {
        "q": planes(12288, 2560), "k": planes(512, 2560), "v": planes(512, 2560), "o": planes(2560, 6144),
        "q_norm": head, "k_norm": head, "iq": asked[:512], "ik": asked[512:], "iq_norm": index, "ik_norm": index,
    }  # fmt: skip
    joined = getattr(upload, "DeviceQsa", None)  # older checkouts have none
    return weights.Qsa(**parts) if joined is None else joined(**parts, asked=asked)


class Work:
    """An arm's own process.

    Args:
        constants: to change.
        rows: of windows.
    """

    def __init__(self, constants: dict[str, int], rows: list[int]) -> None:
        branches = bool(constants.pop("BRANCHES", 1))
        for name, value in constants.items():
            assert hasattr(layers, name), name
            setattr(layers, name, value)
        torch.manual_seed(1)
        shapes = [(count, depth) for count in rows for depth in DEPTHS]
        self._pool = Pool(CONFIG, DEVICE, slots=len(shapes), cells=sum(depth + 64 for _, depth in shapes))
        for table in self._pool.blocks:
            table.normal_()
        self._ops = GpuOps(CONFIG, self._pool, DEVICE, graphs=branches)
        self._layers = [_layer() for _ in range(LAYERS)]
        self._cold = torch.zeros(THROUGH, device=DEVICE)
        self._kept: list[object] = []  # what graphs read
        self._graphs = {"nothing": self._recorded(lambda _: None)}
        self._graphs |= {
            f"{count} rows, {depth}": self._recorded(self._window(count, depth)) for count, depth in shapes
        }

    def _recorded(self, body: Callable[[int], None]) -> torch.cuda.CUDAGraph:
        self._kept.append(body)
        for _ in range(2):  # kernels are compiled
            body(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for number in range(LAYERS):
                self._cold.add_(1)
                body(number)
        return graph

    def _window(self, count: int, depth: int) -> Callable[[int], None]:
        ops, state = self._ops, self._pool.new_state()
        self._pool.reserve(state, depth + count)
        state.length = depth
        positions = torch.arange(depth, depth + count)[:, None].expand(-1, 3)
        batch = ops.begin(segments([(state, [1] * count, positions)]), window=True)
        numbers, x = batch.numbers.clone(), torch.randn((count, 2560), device=DEVICE)

        def body(number: int) -> None:
            if number == 0:
                batch.numbers.copy_(numbers)  # windows of one shape share them
            w, m = self._layers[number], Rows(x, quantise(x))
            ops.qsa_output(ops.qsa_attend(ops.qsa_project(m, batch, w), batch, number, w, sparse=True), w)

        return body

    def round(self) -> dict[str, float]:
        """Microseconds of a layer, of each graph."""
        found = {}
        for name, graph in self._graphs.items():
            times = []
            for _ in range(REPLAYS):
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                graph.replay()
                last.record()
                torch.cuda.synchronize()
                times.append(first.elapsed_time(last) * 1e3 / LAYERS)
            found[name] = statistics.median(times)
        return {name: taken - found["nothing"] for name, taken in found.items()}


class Arm(Process):
    """A process that measures when it is told to."""

    def __init__(self, spec: str, rows: list[int]) -> None:
        name, _, rest = spec.partition("=")
        checkout, *constants = rest.split(",")
        super().__init__(name, __file__, checkout, [dict(_constant(one) for one in constants), rows])

    def medians(self) -> dict[str, float]:
        """Of all rounds."""
        return {name: round(statistics.median(r[name] for r in self.rounds), 2) for name in self.rounds[0]}


def _constant(text: str) -> tuple[str, int]:
    name, value = text.split("=")
    return name, int(value)


def main() -> None:
    """Start the arms, let them take turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append")
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        with torch.inference_mode():
            work = Work(*json.loads(given.work))
            print(json.dumps("ready"), flush=True)
            for _ in sys.stdin:
                print(json.dumps(work.round()), flush=True)
        return
    arms = [Arm(spec, given.rows) for spec in given.arm or ["now="]]
    for arm in arms:
        arm.answer()
    for turn in range(ROUNDS):
        for arm in arms if turn % 2 else arms[::-1]:
            arm.measure()
    for arm in arms:
        arm.end()
    result = {arm.name: arm.medians() for arm in arms}
    for name in arms[0].rounds[0]:
        print(f"{name:20}", *(f"{arm}: {found[name]:8.2f}" for arm, found in result.items()))
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
