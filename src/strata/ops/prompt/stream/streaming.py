"""A model's experts during prompt passes: which are here, which come, and whether to ask first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from strata.ops.experts.slots import Slots
from strata.ops.prompt import grouped
from strata.ops.prompt.stream.ring import Ring
from strata.ops.prompt.stream.share import Share
from strata.ops.prompt.stream.split import Costs, all_at_once, pass_rows, ring_buffers
from strata.ops.prompt.stream.told import Told, sent

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Streaming:
    """What a prompt's operations ask about experts.

    Args:
        ring: through which missing ones come.
        moes: each layer's experts; their `slots` say whose they are.
        topk: experts a row visits.
        costs: measured.
        wide: another ring for a pass that begins, if there is one.

    Attributes:
        share: of the missing experts that rows visit, as learned.
        passes: so far.
        asked: of them those in which experts come when a layer has said what it wants.
        brought: experts that came.
    """

    def __init__(
        self, ring: Ring, moes: Sequence[Any], topk: int, costs: Costs, wide: Callable[[], Ring | None] = lambda: None
    ) -> None:
        self._own = self._ring = ring
        self._costs, self._wide = costs, wide
        self._kept = [moe.slots for moe in moes]  # an object's number is its own only as long as it lives
        self._numbers = {id(slots): number for number, slots in enumerate(self._kept)}
        self._device = self._kept[0].slot_of.device
        shape = len(self._kept), self._kept[0].experts
        self._lacking = np.zeros(shape, np.bool_)
        self._rank = np.zeros(shape, np.int32)
        self._ranks = torch.zeros(shape, dtype=torch.int32, device=self._device)
        self._sizes = np.zeros(shape[1], np.int32)
        self._told = Told(shape[1], self._device)
        self._rows = self._wanted = self._lacked = 0
        self._ask = False
        self._of_text = True  # what the latest pass read
        self.share = Share(topk, shape[1])
        self.passes = self.asked = self.brought = 0

    def number(self, moe: Any) -> int:
        """Of a layer."""
        return self._numbers[id(moe.slots)]

    def pass_rows(self, most: int) -> int:
        """Rows of the longest passes that make sense with what is missing now; see `split.pass_rows`."""
        return pass_rows(most, self._costs, sum(map(len, self._ring.missing())))

    def begin(self, rows: int) -> None:
        """A pass of so many rows begins; which experts are here does not change until it ends."""
        self._ring = self._wide() or self._own
        missing = self._ring.missing()
        self._learn()
        self._ask = not all_at_once(rows, self.share.of(rows), [len(one) for one in missing], self._costs)
        ring = self._ring
        wide = 0 if self._ask else ring_buffers(rows, len(missing), ring.most, ring.landing, self._costs)
        missing = ring.widen(wide)
        lacking = self._lacking = np.zeros_like(self._lacking)
        for layer, experts in enumerate(missing):
            lacking[layer, np.asarray(experts, np.int64)] = True
        # Those that are here first, then the others in the order in which they come.
        here = lacking.shape[1] - lacking.sum(1, keepdims=True)
        self._rank = np.where(lacking, here + lacking.cumsum(1), (~lacking).cumsum(1)).astype(np.int32) - 1
        self._rows = rows
        self._ring.begin(None if self._ask else missing)
        self._ranks.copy_(sent(self._rank, self._device))
        self.passes += 1
        self.asked += self._ask
        self.brought += 0 if self._ask else int(lacking.sum())

    @property
    def width(self) -> int:
        """Buffers of the ring during the latest pass, with those that were borrowed."""
        return self._ring.buffers

    def lacks(self, layer: int) -> bool:
        """Whether any expert of a layer is not here."""
        return bool(self._lacking[layer].any())

    def rank(self, layer: int) -> Tensor:
        """In which order a layer's experts are computed: int32 [E] on the device."""
        return self._ranks[layer]

    def here(self, layer: int, plan: grouped.Plan) -> grouped.Span | None:
        """Of the experts that are here; None if none is."""
        here = ~self._lacking[layer]
        count = int(np.count_nonzero(here))
        return self._tiled(plan.some(0, count, count), plan, here) if count else None

    def ask(self, sizes: Tensor) -> None:
        """A layer's rows have chosen: launch what tells the host of it, which may be recorded.

        Args:
            sizes: int32 [E], how many pairs each expert has.
        """
        self._told.send(sizes)

    def asked_for(self) -> None:
        """What tells the host was launched; what is launched from now on does not hold it up."""
        self._told.sent()

    def count(self, layer: int) -> None:
        """The host has to know from now on what a layer's rows have chosen, so that launches are as large as they need.

        Nothing else says so: any 32 experts may have all pairs, and nine in ten programs of a long pass would find
        nothing to do. What needs no count is launched before, so the device is at work while the host waits for it.

        In a long pass nearly all experts are chosen, and they come unasked; in a short one it is worth while to wait
        for the choices, and the copies of what was chosen are handed over now.
        """
        self._read(layer)
        if self._ask:
            wanted = np.flatnonzero((self._sizes > 0) & self._lacking[layer])
            self._ring.want(layer, wanted.tolist())
            self.brought += len(wanted)

    def groups(self, layer: int, plan: grouped.Plan) -> Iterator[tuple[Slots, grouped.Span]]:
        """Those that come, as they do."""
        for slots, experts in self._ring.slots(layer):
            low, high = int(self._rank[layer, experts[0]]), int(self._rank[layer, experts[-1]]) + 1
            yield slots, self._tiled(plan.some(low, high, len(experts)), plan, list(experts))

    def _read(self, layer: int) -> None:
        """What a layer's rows have chosen, when it has come. It is the one place where a pass waits for the device."""
        self._sizes = self._told.read()
        self._wanted += int(np.count_nonzero((self._sizes > 0) & self._lacking[layer]))
        self._lacked += int(np.count_nonzero(self._lacking[layer]))

    def _tiled(self, span: grouped.Span, plan: grouped.Plan, experts: "list[int] | NDArray[np.bool_]") -> grouped.Span:
        """With as many tiles and pairs as these experts have, which are all of its that were chosen."""
        sizes = self._sizes[experts]
        tiles, pairs = int((-(-sizes // plan.tile)).sum()), int(sizes.sum())
        return span._replace(most=max(1, min(span.most, tiles)), pairs=min(span.pairs, pairs))

    def _learn(self) -> None:
        """From what the pass before has chosen of what was missing."""
        if self._of_text:
            self.share.met(self._rows, self._wanted, self._lacked)
        self._of_text = not self._ring.still
        self._wanted = self._lacked = 0


@dataclass(frozen=True, slots=True)
class Room:
    """Memory for rows of a layer's experts, which its end leaves to the next layer's.

    Attributes:
        rows: float16, of the layer, in the order of the products.
        out: float16 [T * topk, H], of all pairs.
    """

    rows: Tensor
    out: Tensor


Between = Callable[[Callable[[], None]], None]
"""Does something of the host's now, or, where launches are recorded, each time that the record is run again."""


def streamed_rows(
    streaming: Streaming,
    layer: int,
    here: Slots,
    x: Tensor,
    counts: Tensor,
    chosen: Tensor,
    beside: Callable[[], Tensor],
    between: Between,
    room: Room | None = None,
) -> tuple[Tensor, Tensor]:
    """Rows of all pairs of a layer: those of experts that are here, then those of the others as these come.

    A pair's row depends on the row and the expert alone, so it has the bytes it has where all are here. What needs
    none of the experts is launched before the host asks for the layer's choices, and computed under their copies. One
    plan serves all launches of the layer. What is launched depends on the choices, and on what is here: it is the
    host's part.

    Args:
        streaming: of the pass.
        layer: number.
        here: the layer's experts on the device.
        x: float16 [T, H].
        counts: int32 [1], T.
        chosen: int32 [T, topk].
        beside: what else is to be computed.
        between: for what the host does.
        room: memory that rows go to; None for memory of their own.

    Returns:
        float16 [T * topk, H], without the router's weights; and what else was computed.
    """
    sizes = grouped.visits(chosen, counts, here.experts)
    streaming.ask(sizes)
    between(streaming.asked_for)
    plan = grouped.planned(chosen, counts, sizes, streaming.rank(layer))
    other = beside()
    rows = grouped.ordered(x, counts, None if room is None else room.rows)
    y = torch.empty((chosen.numel(), x.shape[1]), dtype=torch.float16, device=x.device) if room is None else room.out

    def visit() -> None:
        streaming.count(layer)
        span = streaming.here(layer, plan)
        if span is not None:
            grouped.rows_of(here, rows, plan, y, span)
        for slots, some in streaming.groups(layer, plan):
            grouped.rows_of(replace(slots, scales=here.scales), rows, plan, y, some)

    between(visit)
    return y, other
