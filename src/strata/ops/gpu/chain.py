"""The guesses of the draft head as one graph: a step's token and residual stay where the next step takes them.

Which cells a step computes is known before: behind the committed ones, one after the other. So all numbers of all steps
go to the device in one copy, and the only one that it has to fill in is the token. When a guess is less probable than
the floor, the chain has ended; what the graph computes of it nevertheless is not read, and lies in cells that are
overwritten.

Step by step (`GpuMtp.draft`), the host waits once for each token. The tokens are the same.
"""

import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from strata.model.config import ModelConfig
from strata.ops import dependent
from strata.ops.choice import gpu as choice
from strata.ops.gpu.batch import GpuBatch, send, sizes
from strata.ops.gpu.choice import PART, Told
from strata.ops.gpu.pool import GpuState, Pool
from strata.ops.gpu.record import Recording

WORDS = 4
"""Integers of 16 bytes, at whose multiples the numbers of a step begin, as those of a window do."""

Step = Callable[[Tensor, GpuBatch], tuple[Tensor, Tensor]]
"""Residuals [T, S*H] and their batch to the last row's residual [1, S*H] and predictions [1, V]."""


@dataclass(slots=True)
class Chained:
    """Chains of one shape.

    Attributes:
        batches: of the steps; the first has the cells that waited, the others one row.
        numbers, staged: int32, of all batches one after the other, and the floor's bits; as in `GpuBatch`.
        copied: when they last were copied; None where that is done at once.
        given: float32 [T, S*H], residuals of the first step.
        tokens, bad: int32 [1], of the newest step.
        told: int32 [4], what `choice.best` says of it.
        found: where the host reads the tokens, int32 [steps]; the chain ends at the first that is -1.
        record: the graph, once the shape was met a second time.
    """

    batches: list[GpuBatch]
    numbers: Tensor
    staged: Tensor
    copied: torch.cuda.Event | None
    given: Tensor
    tokens: Tensor
    bad: Tensor
    told: Tensor
    found: Told
    record: Recording | None = None
    met: bool = False


class Chains:
    """Runs chains; records them where the device has graphs.

    Records share their memory, because nothing that one leaves there is read after it.

    Args:
        ops: operations of the head, see `strata.ops.gpu.draft.DraftHead`.
        pool: of its cells.
        config: dimensions of the whole model.
        device: where.
    """

    def __init__(self, ops: Any, pool: Pool, config: ModelConfig, device: torch.device) -> None:
        self._ops, self._pool, self._c, self._device = ops, pool, config, device
        self._launch = dependent.launch(device)
        self._chains: dict[Hashable, Chained] = {}
        self._first: Recording | None = None
        self._parts = -(-config.V // PART)
        self._banned = torch.zeros(config.V, dtype=torch.int8, device=device)  # nothing: a guess may be anything
        self._peaks, self._sums = torch.empty((2, self._parts), dtype=torch.float32, device=device)
        self._places, self._faults = torch.empty((2, self._parts), dtype=torch.int32, device=device)

    def run(
        self, cells: GpuState, ids: Sequence[int], residual: Tensor, depth: int, floor: float, step: Step,
        kind: Hashable,
    ) -> tuple[int, ...]:  # fmt: skip
        """The tokens of a chain.

        Args:
            cells: the conversation's; they are written behind the committed ones, and not counted.
            ids: of the first step's rows.
            residual: float32 [T, S*H], of those.
            depth: steps.
            floor: the chain ends before a token less probable than this.
            step: computes one.
            kind: what makes a step another one.

        Raises:
            RequestError: there is no room for the cells.
        """
        count, last = len(ids), cells.length + len(ids) - 1
        self._pool.reserve(cells, last + depth)
        key = count, depth, kind
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = self._empty(count, depth)
        ratio, told = self._pool.config.qsa.ratio, []
        for i, batch in enumerate(chain.batches):
            begin = cells.length if i == 0 else last + i
            batch.spare_places = [cells.place]  # nothing recurrent is in there
            places = range(begin, begin + len(batch.ids))
            one = batch.told([cells], ids if i == 0 else [0], places, [begin], ratio)
            told += [*one, *[0] * (-len(one) % WORDS)]
        told += struct.unpack("<i", struct.pack("<f", floor))
        send(told, chain.numbers, chain.staged, chain.copied)
        chain.given.copy_(residual)
        self._replay(chain, step)
        chain.found.mark()
        chain.found.wait()
        tokens: list[int] = chain.found.numbers.tolist()
        return tuple(tokens[: tokens.index(-1)] if -1 in tokens else tokens)

    def _replay(self, chain: Chained, step: Step) -> None:
        if chain.record is None and (self._device.type != "cuda" or not self._ops.graphs or not chain.met):
            chain.met = True
            self._launched(chain, step)
            return
        if chain.record is None:
            record = Recording(self._first)
            with record.capture():
                self._launched(chain, step)
            chain.record = record
            self._first = self._first or record
        chain.record.replay()

    def _launched(self, chain: Chained, step: Step) -> None:
        x = chain.given
        for i, batch in enumerate(chain.batches):
            x, logits = step(x, batch)
            choice.best_parts[(1, self._parts)](
                logits, self._banned, self._peaks, self._places, self._sums, self._faults, self._c.V, self._parts,
                BLOCK=PART, TOP=1, **self._launch, num_warps=4,
            )  # fmt: skip
            choice.best[(1,)](
                self._peaks, self._places, self._sums, self._faults, chain.tokens, chain.bad, chain.told, self._parts,
                BLOCK=_power(self._parts), ENTRIES=_power(self._parts), TOP=1, **self._launch, num_warps=4,
            )  # fmt: skip
            following = chain.batches[i + 1].ids if i + 1 < len(chain.batches) else chain.tokens
            choice.link[(1,)](
                chain.tokens, chain.bad, chain.told, chain.numbers[-1:], following, chain.found.numbers[i:],
                **self._launch, num_warps=1,
            )  # fmt: skip

    def _empty(self, count: int, depth: int) -> Chained:
        device, on_gpu = self._device, self._device.type == "cuda"
        shapes = [(count,)] + [(1,)] * (depth - 1)
        lengths = [sum(sizes(shape)) for shape in shapes]
        rooms = [-(-length // WORDS) * WORDS for length in lengths]
        numbers = torch.zeros(sum(rooms) + 1, dtype=torch.int32, device=device)
        staged = torch.zeros(len(numbers), dtype=torch.int32, pin_memory=on_gpu)
        parts = zip(shapes, lengths, numbers[:-1].split(rooms), staged[:-1].split(rooms), strict=True)
        found = torch.zeros(depth, dtype=torch.int32, pin_memory=on_gpu)

        def ints(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int32, device=device)

        return Chained(
            batches=[
                GpuBatch.over(shape, self._pool.config, here[:size], there[:size], None)
                for shape, size, here, there in parts
            ],
            numbers=numbers,
            staged=staged,
            copied=torch.cuda.Event() if on_gpu else None,
            given=torch.empty((count, self._c.S * self._c.H), dtype=torch.float32, device=device),
            tokens=ints(1),
            bad=ints(1),
            told=ints(4),
            found=Told(found, torch.cuda.Event() if on_gpu else None),
        )


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
