"""A layer's part of a window that misses experts: what the device launches for it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from strata.experts.misses import Mailbox
from strata.experts.misses.mailbox import MOST_ROWS
from strata.ops.dependent import launch
from strata.ops.experts.slots import Slots
from strata.ops.experts.triton import Plan, down, gate_up
from strata.ops.gpu.branches import Branches
from strata.ops.matvec.triton import Activations, quantise
from strata.ops.tiers import kernels
from strata.ops.tiers.bring import DOWN, GATE_UP, Source

BLOCK = 1024
"""Words of a message that its program writes at a time."""

BOX_WARPS = 8

TAKEN = 1024
"""Numbers of a row that a program takes from the host's memory."""


@dataclass(frozen=True, slots=True)
class LinkLists:
    """The link's part of a layer, as a plan: one for all layers and windows.

    Attributes:
        experts, slots, counts, pairs, totals: of the plan; its slots are the link's places in their order.
        hosts: which entries of the window's plan are the host's, if some experts lie on a disk.
    """

    experts: Tensor
    slots: Tensor
    counts: Tensor
    pairs: Tensor
    totals: Tensor
    hosts: Tensor

    @classmethod
    def empty(cls, most: int, device: torch.device) -> "LinkLists":
        """Room for so many experts."""
        size = 1 << most.bit_length()

        def room(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        slots = torch.arange(size, dtype=torch.int32, device=device)
        return cls(room(size), slots, room(size), room(size, MOST_ROWS), room(2), room(size))


@dataclass(frozen=True, slots=True)
class Halves:
    """What both halves of a window have in common, and all layers.

    Attributes:
        mailbox: where things lie in the memory that both sides see.
        box: uint8, that memory.
        state: int64, words of the device's half (`kernels.STATE`).
        split: int32, how many experts go over the link, by how many are missing.
        sums, visits: what layers met (`kernels.publish`).
        link: the link's part.
        stage: uint8, memory of the device for blocks on their way.
        room: experts that the link may bring for one layer; 0 for none.
        nobody: the place of an expert that lies on a disk; None where all are in RAM.
    """

    mailbox: Mailbox
    box: Tensor
    state: Tensor
    split: Tensor
    sums: Tensor
    visits: Tensor
    link: LinkLists
    stage: Tensor
    room: int
    nobody: int | None


@dataclass(frozen=True, slots=True)
class LayerTier:
    """One layer's part.

    Attributes:
        number: of the layer.
        halves: of the window.
        source: its experts in RAM.
        slots: those on the device.
        scratch: ``uint8 [room, bytes of a slot]``, for those that the link brings.
    """

    number: int
    halves: Halves
    source: Source
    slots: Slots
    scratch: Tensor

    def misses(self, x: Activations, plan: Plan, y: Tensor, branches: Branches) -> Callable[[], None]:
        """Rows of the pairs whose experts have no slot, into ``y`` ``float32 [at least pairs, H]``.

        Three branches, none of which hits wait for. The first tells the host of its part, and then brings the link's:
        gates and ups before downs, so that products with those are done when the last downs come. It is urgent: else
        the host's message would stand behind all programs of the hits, 22 us of a window of four rows on an H200. The
        second computes what has come. It is not urgent, or programs that wait for experts would keep hits off the
        device. The third takes what the host has computed, whichever of both is done first: in a row with the second
        the two launches took 7 us after the last product.

        Returns:
            To call where the rows are needed.
        """
        points: list[Callable[[], None]] = []

        def asked() -> None:
            self.publish(x, plan)
            points.append(branches.point())
            self.fetch(plan, GATE_UP)
            points.append(branches.point())
            self.fetch(plan, DOWN)

        brought = branches.begin("asked", asked, urgent=True)
        published, half = points

        def computed() -> None:
            half()
            self.compute(x, plan, y, brought)

        def taken() -> None:
            published()
            self.take(plan, y)

        both = branches.begin("link", computed), branches.begin("host", taken)

        def finish() -> None:
            for join in both:
                join()

        return finish

    def publish(self, x: Activations, plan: Plan) -> None:
        """Share out what is missing, and tell the host of its part."""
        h, link, disk = self.halves, self.halves.link, self.halves.nobody is not None
        box = box_constants(h.mailbox)
        del box["AT_RESULTS"]
        kernels.publish[(1,)](
            plan.experts, plan.counts, plan.pairs, plan.totals, x.q.view(torch.int32), x.s, h.box, h.state, h.split,
            link.experts, link.counts, link.pairs, link.totals, link.hosts, h.visits, h.sums,
            self.source.places, h.nobody or 0, self.number, plan.rows,
            **box, BLOCK=BLOCK, WIDTH=self.source.layout.hidden, M=len(plan.experts), DISK=disk,
            **launch(x.q.device), num_warps=BOX_WARPS,
        )  # fmt: skip

    def fetch(self, plan: Plan, parts: tuple[int, ...]) -> None:
        """Bring parts of the link's experts."""
        link = self.halves.link
        if self.halves.room:
            self.bring(link.experts, link.slots, link.totals, self._most(plan), parts)

    def compute(self, x: Activations, plan: Plan, y: Tensor, downs: Callable[[], None]) -> None:
        """Rows of the experts that the link brings; `downs` waits for the last matrices."""
        h, link = self.halves, self.halves.link
        if not h.room:
            downs()
            return
        brought = Plan(
            plan.rows, plan.topk, plan.rows * plan.topk, link.experts, link.slots, link.counts, link.pairs, link.totals,
            self._most(plan),
        )  # fmt: skip
        slots = Slots(self.source.layout, self.scratch, self.slots.slot_of, -1, self.slots.scales)
        inner = quantise(gate_up(slots, x, brought))
        downs()
        down(slots, inner, brought, out=y)

    def take(self, plan: Plan, y: Tensor) -> None:
        """Wait for the host, and take the rows that it has computed."""
        h, hidden = self.halves, self.source.layout.hidden
        kernels.await_host[(1,)](h.box, h.state, h.sums, self.number, **launch(y.device), num_warps=1)
        kernels.take[(-(-hidden // TAKEN), plan.rows * plan.topk)](
            plan.counts, plan.pairs, h.link.hosts, h.box, h.state, y, AT_RESULTS=h.mailbox.results, BLOCK=TAKEN,
            WIDTH=hidden, M=len(plan.experts), DISK=h.nobody is not None, **launch(y.device), num_warps=4,
        )  # fmt: skip

    def bring(
        self, experts: Tensor, places: Tensor, totals: Tensor, most: int, parts: tuple[int, ...] = GATE_UP + DOWN
    ) -> None:
        """Bring experts, or parts of them, to the link's places."""
        self.source.launch(self.scratch, self.halves.stage, experts, places, totals, most, parts=parts)

    def _most(self, plan: Plan) -> int:
        """Experts that the link may bring for a plan."""
        return min(plan.rows * plan.topk, self.halves.room)


def box_constants(mailbox: Mailbox) -> dict[str, int]:
    """Where things lie in the memory that both halves share, as kernels take them."""
    return {
        "AT_EXPERTS": mailbox.experts, "AT_COUNTS": mailbox.counts, "AT_NUMBERS": mailbox.numbers,
        "AT_CODES": mailbox.codes, "AT_SCALES": mailbox.scales, "AT_RESULTS": mailbox.results,
        "VISITS": mailbox.pairs,
    }  # fmt: skip
