"""A model's experts during prompt passes: which are here, which come, and whether to ask first."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strata.ops.experts.slots import Slots
from strata.ops.prompt import grouped
from strata.ops.prompt.stream.ring import Ring
from strata.ops.prompt.stream.split import Costs, all_at_once


class Streaming:
    """What a prompt's operations ask about experts.

    Args:
        ring: through which missing ones come.
        moes: each layer's experts; their `slots` say whose they are.
        topk: experts a row visits.
        costs: measured.

    Attributes:
        passes: so far.
        asked: of them those in which each layer told the host what it wants.
        brought: experts that came.
    """

    def __init__(self, ring: Ring, moes: Sequence[Any], topk: int, costs: Costs) -> None:
        self._ring, self._topk, self._costs = ring, topk, costs
        self._kept = [moe.slots for moe in moes]  # an object's number is its own only as long as it lives
        self._numbers = {id(slots): number for number, slots in enumerate(self._kept)}
        self._experts = self._kept[0].experts
        self._missing: list[frozenset[int]] = []
        self._ask = False
        self.passes = self.asked = self.brought = 0

    def number(self, moe: Any) -> int:
        """Of a layer."""
        return self._numbers[id(moe.slots)]

    def begin(self, rows: int) -> None:
        """A pass of so many rows begins; which experts are here does not change until it ends."""
        missing = [list(experts) for experts in self._ring.missing()]
        self._missing = [frozenset(experts) for experts in missing]
        self._ask = not all_at_once(rows, self._topk, self._experts, [len(one) for one in missing], self._costs)
        self._ring.begin(None if self._ask else missing)
        self.passes += 1
        self.asked += self._ask
        self.brought += 0 if self._ask else sum(map(len, missing))

    def lacks(self, layer: int) -> bool:
        """Whether any expert of a layer is not here."""
        return bool(self._missing[layer])

    def has(self, layer: int) -> bool:
        """Whether any is."""
        return len(self._missing[layer]) < self._experts

    def want(self, layer: int, chosen: Tensor) -> None:
        """A layer's rows have chosen, int32 [rows, topk].

        In a long pass nearly all experts are chosen, and they come unasked; in a short one it is worth while to wait
        for the choices.
        """
        if self._ask:
            visited = np.unique(chosen.cpu().numpy())
            wanted = [int(e) for e in visited if int(e) in self._missing[layer]]
            self.brought += len(wanted)
            self._ring.want(layer, wanted)

    def groups(self, layer: int) -> Iterator[Slots]:
        """Those that come, as they do."""
        return self._ring.slots(layer)


def streamed_rows(streaming: Streaming, layer: int, here: Slots, x: Tensor, counts: Tensor, chosen: Tensor) -> Tensor:
    """Rows of all pairs of a layer: those of experts that are here, then those of the others as these come.

    A pair's row depends on the row and the expert alone, so it has the bytes it has where all are here.

    Args:
        streaming: of the pass.
        layer: number.
        here: the layer's experts on the device.
        x: float16 [T, H].
        counts: int32 [1], T.
        chosen: int32 [T, topk].

    Returns:
        float16 [T * topk, H], without the router's weights.
    """
    streaming.want(layer, chosen)
    y = torch.empty((chosen.numel(), x.shape[1]), dtype=torch.float16, device=x.device)
    rows = grouped.ordered(x, counts)
    for slots in chain([here] if streaming.has(layer) else [], streaming.groups(layer)):
        plan = grouped.planned(grouped.among(chosen, slots), counts, here.experts)
        grouped.rows_of(replace(slots, scales=here.scales), rows, plan, y)
    return y
