"""How fast experts come over the link as planes: programs, warps and pieces, by how many come at a time.

python bench/gpu_bring.py [--types IQ3_XXS IQ3_XXS IQ4_NL] [--hidden 2560] [--inner 640] [--json FILE]

Every figure is a recorded graph, as in a window: launches of so many experts one behind the other, each of other ones.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from strata.ops.experts.slots import SlotLayout
from strata.ops.tiers import bring, repack

COUNTS = (1, 2, 4, 5, 8, 16, 32)
EXPERTS = 64
REPLAYS = 5

ARMS = (
    *((warps, each, widest) for warps, widest in ((4, 6144), (4, 3136), (4, 12544)) for each in (1, 2, 3, 4, 8)),
    *((warps, each, widest) for warps, widest in ((2, 3136), (8, 12544)) for each in (1, 2, 4)),
)
"""Warps of a program, programs of a multiprocessor, bytes of a piece."""


@dataclass(frozen=True)
class Experts:
    """Some experts, and where they go.

    Attributes:
        kind: of a slot.
        raw: uint8 [experts, ..], blocks of gate, up and down, in locked RAM or on the device.
        source: they.
        slots: uint8 [most, bytes], on the device.
        stage: uint8, there.
    """

    kind: SlotLayout
    raw: list[torch.Tensor]
    source: bring.Source
    slots: torch.Tensor
    stage: torch.Tensor

    @classmethod
    def some(cls, kind: SlotLayout, device: torch.device, *, locked: bool = True, past: int = 0) -> "Experts":
        """Random ones that begin so many bytes behind a line of 128."""
        raw = []
        for rows, size in bring.stored(kind):
            count = EXPERTS * rows * size
            room = torch.empty(count + 256, dtype=torch.uint8, device=None if locked else device, pin_memory=locked)
            first = (past - room.data_ptr()) % 128
            part = room[first : first + count].view(EXPERTS, -1)
            part.copy_(torch.randint(0, 256, part.shape, dtype=torch.uint8, device=device))
            raw.append(part)
        torch.cuda.synchronize()
        each = np.arange(EXPERTS)
        places = np.stack([part.data_ptr() + part.shape[1] * each for part in raw], axis=1)[None].astype(np.int64)
        (source,) = bring.sources([kind], places, raw[0].view(-1), device)
        slots = torch.zeros((max(COUNTS), kind.nbytes), dtype=torch.uint8, device=device)
        stage = torch.zeros(max(COUNTS) * source.nbytes, dtype=torch.uint8, device=device)
        return cls(kind, raw, source, slots, stage)

    def microseconds(self, count: int, programs: int) -> float:
        """Of one launch."""
        device, launches = self.slots.device, max(4, 2 * EXPERTS // count)
        number = torch.arange(EXPERTS, dtype=torch.int32, device=device)
        chosen = [torch.roll(number, i * count)[:count].contiguous() for i in range(launches)]
        total = torch.tensor([count], dtype=torch.int32, device=device)

        def run() -> None:
            for experts in chosen:
                self.source.launch(self.slots, self.stage, experts, number, total, count, programs=programs)

        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        graph.replay()
        times = []
        for _ in range(REPLAYS):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            graph.replay()
            ended.record()
            ended.synchronize()
            times.append(1e3 * began.elapsed_time(ended) / launches)
        return median(times)

    def right(self) -> bool:
        """What was brought last are the planes of the file's bytes."""
        expert = torch.tensor([EXPERTS - 1], dtype=torch.int32, device=self.slots.device)
        one = torch.ones_like(expert)
        self.source.launch(self.slots, self.stage, expert, one, one, 1)
        expected = torch.zeros_like(self.slots[0])
        rows = [count for count, _ in bring.stored(self.kind)]
        self.kind.fill(
            expected, *(x[-1].view(count, -1).to(expected.device) for x, count in zip(self.raw, rows, strict=True))
        )
        return torch.equal(self.slots[1], expected)


def line(some: Experts, name: str, programs: int, found: dict[str, dict[str, float]]) -> None:
    """Measure and show an arm."""
    times = {count: some.microseconds(count, programs) for count in COUNTS}
    each = (times[8] - times[1]) / 7
    first = times[1] - each
    speeds = "  ".join(f"{count * some.source.nbytes / us / 1e3:5.1f}" for count, us in times.items())
    print(f"{name:<44} {speeds}  {times[1]:7.1f} us {each:7.1f} us each, first {first:6.1f}", flush=True)
    found[name] = {**{str(count): round(us, 2) for count, us in times.items()}, "each": each, "first": first}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--types", nargs=3, default=["IQ3_XXS", "IQ3_XXS", "IQ4_NL"])
    parser.add_argument("--hidden", type=int, default=2560)
    parser.add_argument("--inner", type=int, default=640)
    parser.add_argument("--json")
    given = parser.parse_args()
    device = torch.device("cuda")
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    kind = SlotLayout(*given.types, given.hidden, given.inner)
    found: dict[str, dict[str, float]] = {}
    some = Experts.some(kind, device)
    print(f"{torch.cuda.get_device_name(device)}, {' '.join(given.types)}: {some.source.nbytes:,} bytes an expert")
    print(f"{'GB/s by experts at a time':<44} " + "  ".join(f"{count:5d}" for count in COUNTS))

    def chosen(warps: int, widest: int) -> None:
        bring.WARPS, repack.WIDEST = warps, widest
        bring.constants.cache_clear()

    usual = bring.WARPS, repack.WIDEST
    for warps, each, widest in ARMS:
        chosen(warps, widest)
        line(some, f"{each} of {warps} warps, pieces of {widest}", each * processors, found)
    chosen(*usual)
    line(some, "as it is", bring.programs_of(device), found)
    right = some.right()
    for name, other in (
        ("from 32 bytes behind a line", Experts.some(kind, device, past=32)),
        ("from the device's memory", Experts.some(kind, device, locked=False)),
    ):
        line(other, name, bring.programs_of(device), found)
        right &= other.right()
    print(f"bytes are {'right' if right else 'WRONG'}")
    if given.json:
        conditions = {
            "command": "python bench/gpu_bring.py " + " ".join(sys.argv[1:]),
            "device": torch.cuda.get_device_name(),
            "versions": {"torch": torch.__version__, "triton": triton.__version__},
            "unit": "microseconds of a launch, by experts at a time; each and first are the line through them",
        }
        Path(given.json).write_text(json.dumps({"conditions": conditions, "arms": found}, indent=1) + "\n")
    sys.exit(not right)


if __name__ == "__main__":
    torch.inference_mode()(main)()
