"""How fast a GPU is: its memory, its products, the link to RAM, starts of kernels, and experts' kernels.

All of it also runs on the CPU in Triton's interpreter, where it proves that it computes and nothing about speed.
"""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from strata.errors import StrataError
from strata.formats import by_name
from strata.lab.rates.blocks import blocks
from strata.lab.rates.cpu import Mix
from strata.lab.rates.rounds import Pace, Sample
from strata.lab.rates.stream import BLOCK, WARPS, stream
from strata.ops.experts.slots import SlotLayout, empty
from strata.ops.experts.triton import experts
from strata.ops.matvec.triton import quantise
from strata.ops.tiers.bring import sources

CHAIN = 256
"""Kernels of the chain whose starts are timed."""

ALIGNED = 64
"""Bytes of which what is copied is a multiple, so that a thread takes 16 of them at once."""

TOGETHER = 16
"""Experts that are brought by one launch."""

TURNS = 12
"""Launches with other experts, one behind the other, of which one time is taken."""

IN_A_ROW = 8
"""Kernels over the card's own memory, or products, of which one time is taken: one of them takes 0.1 to 1 ms, and the
way to the first, some 0.03 ms, is no speed of the card's."""


class Gpu:
    """One card.

    Args:
        device: to measure; the CPU in the interpreter.
        pace: how often.
        nbytes: of the pieces of its memory that are read, larger than its caches.
        pinned: bytes of RAM that it reads.
    """

    def __init__(self, device: torch.device, pace: Pace, nbytes: int, pinned: int) -> None:
        self._device, self._pace = device, pace
        self._real = device.type == "cuda"
        self._nbytes, self._pinned = nbytes // ALIGNED * ALIGNED, pinned // ALIGNED * ALIGNED

    def close(self) -> None:
        """Give memory back to the card, so that a model finds it free."""
        gc.collect()
        if self._real:
            torch.cuda.empty_cache()

    def read(self) -> Sample:
        """GB/s of a kernel that reads the card's memory."""
        source = torch.ones(self._nbytes // 4, dtype=torch.int32, device=self._device)
        sums = torch.zeros(-(-len(source) // BLOCK), dtype=torch.int32, device=self._device)
        found = self._several(lambda: _stream(source, sums, write=False))
        if int(sums.sum()) != len(source):
            raise StrataError("a kernel that adds up the card's memory got another sum")
        return found.rate(self._nbytes / 1e9)

    def copy(self) -> Sample:
        """GB/s of a kernel that copies the card's memory, bytes read and written."""
        source = torch.ones(self._nbytes // 4, dtype=torch.int32, device=self._device)
        target = torch.empty_like(source)
        return self._several(lambda: _stream(source, target, write=True)).rate(2 * self._nbytes / 1e9)

    def products(self, size: int) -> Sample:
        """TFLOPS of float16 products with float32 sums, of square matrices."""
        a, b = (torch.randn((size, size), device=self._device).to(torch.float16) for _ in range(2))
        out = torch.empty_like(a)
        return self._several(lambda: torch.matmul(a, b, out=out)).rate(2 * size**3 / 1e12)

    def link_copy(self, to: str) -> Sample:
        """GB/s of a copy between pinned RAM and the card: to the "gpu" or to "ram"."""
        here, there = self._both_sides()
        source, target = (here, there) if to == "gpu" else (there, here)
        return self._timed(lambda: target.copy_(source, non_blocking=True)).rate(self._pinned / 1e9)

    def link_kernel(self, to: str) -> Sample:
        """GB/s of a kernel of the card that reads pinned RAM (to the "gpu") or writes it (to "ram")."""
        here, there = self._both_sides()
        source, target = (here, there) if to == "gpu" else (there, here)
        found = self._timed(lambda: _stream(source, target, write=True)).rate(self._pinned / 1e9)
        if not torch.equal(source[::997].cpu(), target[::997].cpu()):
            raise StrataError("what a kernel copied over the link is not what was there")
        return found

    def start(self) -> Sample:
        """Microseconds that a small kernel takes in a long chain of them, each waiting for the one before."""
        x = torch.ones((1, 2560), device=self._device)
        room = quantise(x)
        chain = self._recorded([lambda: quantise(x, room)] * (CHAIN if self._real else 2))
        return self._timed(chain).times(1e6 / (CHAIN if self._real else 2))

    def replay(self) -> Sample:
        """Microseconds from asking for a graph of one small kernel to knowing that it has run."""
        x = torch.ones((1, 2560), device=self._device)
        room = quantise(x)
        graph = self._recorded([lambda: quantise(x, room)])

        def once() -> None:
            graph()
            if self._real:
                torch.cuda.synchronize(self._device)

        return self._pace.timed(once, before=3).times(1e6)

    def experts(self, mix: Mix, rows: int) -> Sample:
        """Microseconds of a distinct expert in slots, of as many as so many rows visit that all go elsewhere."""
        kind = SlotLayout(mix.gate, mix.up, mix.down, mix.hidden, mix.inner)
        count = max(rows * mix.topk, min(512, self._nbytes // kind.nbytes))
        slots = empty(kind, count, count, self._device)
        slots.data[:] = 1
        slots.slot_of[:] = torch.arange(count, dtype=torch.int32)
        x = quantise(torch.randn((rows, mix.hidden), device=self._device))
        weights = torch.full((rows, mix.topk), 0.1, device=self._device)
        rng = np.random.default_rng(rows)
        turns = TURNS if self._real else 1
        routes = [
            torch.from_numpy(rng.permutation(count)[: rows * mix.topk].reshape(rows, -1).astype(np.int32)).to(
                self._device
            )
            for _ in range(turns)
        ]
        run = self._recorded([lambda ids=ids: experts(slots, x, ids, weights) for ids in routes])  # type: ignore[misc]
        return self._timed(run).times(1e6 / (turns * rows * mix.topk))

    def bring(self, mix: Mix) -> Sample:
        """Microseconds that an expert takes from pinned RAM, as a file has it, into a slot."""
        kind = SlotLayout(mix.gate, mix.up, mix.down, mix.hidden, mix.inner)
        turns = TURNS if self._real else 1
        groups = max(1, min(self._pinned // (mix.nbytes * TOGETHER), turns))
        count = groups * TOGETHER
        parts = [self._filled(blocks(name, count * n, k).reshape(-1)) for name, n, k in mix.shapes]
        each = [n * by_name(name).row_bytes(k) for name, n, k in mix.shapes]
        places = [
            part.data_ptr() + size * np.arange(count, dtype=np.int64) for part, size in zip(parts, each, strict=True)
        ]
        (source,) = sources([kind], np.stack(places, axis=1)[None], parts[0], self._device)
        slots = torch.zeros((TOGETHER, kind.nbytes), dtype=torch.uint8, device=self._device)
        stage = torch.zeros(TOGETHER * source.nbytes, dtype=torch.uint8, device=self._device)
        numbers = torch.arange(count, dtype=torch.int32, device=self._device)
        total = torch.tensor([TOGETHER], dtype=torch.int32, device=self._device)
        firsts = [i % groups * TOGETHER for i in range(turns)]

        def run() -> None:
            for first in firsts:
                source.launch(slots, stage, numbers[first:], numbers, total, TOGETHER)

        return self._timed(run).times(1e6 / (turns * TOGETHER))

    def _both_sides(self) -> tuple[Tensor, Tensor]:
        """Words in pinned RAM and on the card."""
        here = torch.arange(self._pinned // 4, dtype=torch.int32)
        here = here.pin_memory() if self._real else here
        return here, torch.zeros(len(here), dtype=torch.int32, device=self._device)

    def _filled(self, raw: Any) -> Tensor:
        """Pinned memory with these bytes."""
        memory = torch.empty(len(raw) + 16, dtype=torch.uint8, pin_memory=self._real)
        first = -memory.data_ptr() % 16
        memory = memory[first : first + len(raw)]
        memory.numpy()[:] = raw
        return memory

    def _recorded(self, launches: list[Callable[[], object]]) -> Callable[[], None]:
        """All of them as one graph, so that nothing waits for Python; in the interpreter one after the other."""

        def run() -> None:
            for launch in launches:
                launch()

        if not self._real:
            return run
        run()  # compiles
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay

    def _several(self, work: Callable[[], object]) -> Sample:
        """Seconds on the card of one of several in a row, each launched while the one before runs."""
        count = IN_A_ROW if self._real else 1

        def run() -> None:
            for _ in range(count):
                work()

        return self._timed(run).times(1 / count)

    def _timed(self, work: Callable[[], object]) -> Sample:
        """Seconds on the card."""
        if not self._real:
            return self._pace.timed(work)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

        def once() -> float:
            began.record()
            work()
            ended.record()
            ended.synchronize()
            return float(began.elapsed_time(ended)) * 1e-3

        return self._pace.taken(once, before=2)


def _stream(source: Tensor, target: Tensor, *, write: bool) -> None:
    stream[(triton.cdiv(len(source), BLOCK),)](source, target, len(source), WRITE=write, BLOCK=BLOCK, num_warps=WARPS)
