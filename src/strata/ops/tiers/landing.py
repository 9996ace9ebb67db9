"""Places on the device where the file's blocks land, a group of experts each, before planes are made of them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.ops.tiers.bring import ALIGNED, Source, programs_of, stored
from strata.ops.tiers.copies import Copier, copier, runs
from strata.ops.tiers.sizes import LANDING

PER_PROCESSOR = 8
"""Programs for each multiprocessor that make planes of what has landed: half of its warps. They wait for no link, so
more are of use than `strata.ops.tiers.bring.PER_PROCESSOR`: 1,056 on a card of 132, with 4 KB in 2 us each, are at a
group for 35 us of the 1,250 that the link takes for it. Counted, not measured."""

LIST = 4
"""Kernels are compiled for lists at multiples of 16 bytes."""


class Landing:
    """Landing places. In one an expert's parts follow one another, and the experts of a group do.

    Args:
        sources: of all layers.
        most: experts of a group.
        device: where slots are.
        cuts: see `strata.ops.tiers.copies.runs`.
        places: how many.
        memory: uint8, instead of memory of its own: as many places as it holds.
        each: programs for each multiprocessor.
        copies: what copies; None for what suits the device.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        most: int,
        device: torch.device,
        cuts: NDArray[np.int64],
        *,
        places: int = LANDING,
        memory: Tensor | None = None,
        each: int = PER_PROCESSOR,
        copies: Copier | None = None,
    ) -> None:
        self.most, self._cuts, self._programs = most, cuts, programs_of(device, each)
        self._copies = copier(device) if copies is None else copies
        heaviest = max(source.nbytes for source in sources)
        if memory is None:
            memory = torch.zeros(places * most * heaviest, dtype=torch.uint8, device=device)
        self._places = memory[: len(memory) // (most * heaviest) * most * heaviest].view(-1, most * heaviest)
        self._sizes = {source.layout: tuple(rows * size for rows, size in stored(source.layout)) for source in sources}
        self._at = {kind: _at(sizes, most).to(device) for kind, sizes in self._sizes.items()}
        self._numbers = torch.arange(most, dtype=torch.int32, device=device)
        self._counts = torch.arange(most + 1, dtype=torch.int32, device=device)[:, None].repeat(1, LIST)

    def __len__(self) -> int:
        return len(self._places)

    def fetch(self, source: Source, place: int, addresses: NDArray[np.int64], rows: Sequence[int]) -> None:
        """Launch copies from RAM on the current stream.

        Args:
            source: of the layer.
            place: number of a place.
            addresses: int64 [n, 3], of the experts' gate, up and down.
            rows: which of the group each is.
        """
        found = runs(addresses, rows, self._sizes[source.layout], self._cuts)
        self._copies.run(found, self._places[place], source.nbytes)

    def bring(self, source: Source, slots: Tensor, place: int, count: int, to: Tensor) -> None:
        """Launch, on the current stream, what makes planes.

        Args:
            source: of the layer.
            slots: ``uint8 [slots, layout.nbytes]``.
            place: number of the place.
            count: experts of the group.
            to: int32 [at least count], slots.
        """
        here = self._places[place]
        # Blocks lie as the kernel's stage has them: it is its own stage.
        source.launch(
            slots, here, self._numbers, to, self._counts[count], count,
            at=self._at[source.layout], base=here, programs=self._programs,
        )  # fmt: skip


def _at(sizes: Sequence[int], most: int) -> Tensor:
    """Where parts are in a place, as `strata.ops.tiers.bring.Source.places`: int64 [most, 3]."""
    starts = np.array([0, *np.cumsum(sizes)[:-1]], np.int64)
    found: NDArray[np.int64] = (starts + sum(sizes) * np.arange(most, dtype=np.int64)[:, None]) // ALIGNED
    return torch.from_numpy(found)
