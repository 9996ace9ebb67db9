"""Which device a model runs on, and what it takes there. No torch."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.errors import RequestError
from strata.loading.shown import shown_bytes
from strata.memory.budget import least
from strata.memory.budget.plan import Arena
from strata.memory.budget.words import accounts

if TYPE_CHECKING:
    from strata.memory.budget import Plan, Taken

AUTO, CPU = "auto", "cpu"

_NAMES = re.compile(r"auto|cpu|cuda(:\d{1,3})?")

MEANING = "auto, cpu, cuda, or cuda:N for the Nth GPU"


WHERE = {
    Arena.ALL: "all are in RAM",
    Arena.COMPLEMENT: "the others are in RAM",
    Arena.PART: "the others are in RAM and in the file",
}
"""Experts without a slot in VRAM."""


def check_device(device: str) -> None:
    """Refuse what is no device's name.

    Raises:
        RequestError: it is none of those.
    """
    if not isinstance(device, str) or not _NAMES.fullmatch(device):
        raise RequestError(f"the device must be {MEANING}, not {device!r}")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model is, and the memory it has there.

    Attributes:
        device: "cpu", or "cuda:N".
        name: of the card; empty for the CPU.
        weights: bytes of weights; those of tables that are read from the file are not counted.
        cells: tokens that all conversations together may hold; 0 for as many as there is memory.
        cache: bytes of conversations' memory that is taken from the start.
        work: bytes kept free for what windows and passes compute.
        why: why it is not on a GPU, where there is one that might have been taken.
        storage: what of it is not there, in a sentence's part; empty if all is.
        share: of the routed experts, those that have slots on the card; the others are in RAM.
        parked: bytes of RAM for conversations that are kept; None for whatever is wished.
        plan: who gets how much of the memory, in sentences.
        slots: bytes of `weights` that are for slots of routed experts, where these lie in tiers; else 0.
        kept: bytes of what may be taken of a card that stay free.
    """

    device: str
    name: str = ""
    weights: int = 0
    cells: int = 0
    cache: int = 0
    work: int = 0
    why: str = ""
    storage: str = ""
    share: float = 1.0
    slots: int = 0
    kept: int = 0
    parked: int | None = None
    plan: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def on_gpu(cls, made: "Plan", index: int, name: str, taken: "Taken | None" = None) -> "Placement":
        """As a plan has it for a card.

        Args:
            made: the plan that was followed.
            index: the card's number.
            name: its name.
            taken: what it came to; None if nobody measured it.
        """
        assert made.vram is not None
        weights, work = (
            sum(made.vram.bytes_of(part) for part in parts)
            for parts in (
                (least.DENSE, least.DRAFT, least.EXPERTS, least.TABLE),
                (least.WORK, least.PASS, least.TRANSIT),
            )
        )
        return cls(
            f"cuda:{index}", name, weights, made.cells, made.vram.bytes_of(least.TALK), work, share=made.share,
            storage=WHERE.get(made.arena, ""), slots=0 if made.resident else made.expert_vram,
            kept=made.vram.bytes_of(least.KEPT), parked=made.ram.bytes_of(least.PARKED), plan=_words(made, taken),
        )  # fmt: skip

    @classmethod
    def on_cpu(cls, made: "Plan", why: str = "", taken: "Taken | None" = None) -> "Placement":
        """As a plan has it for main memory."""
        experts = made.ram.bytes_of(least.EXPERTS)
        held = made.arena is Arena.PART
        storage = ""
        if held:
            every = shown_bytes(made.sizes.expert_bytes)
            storage = f"{shown_bytes(experts)} for {every} of experts, the others read from the file"
        return cls(
            CPU, weights=made.ram.bytes_of(least.DENSE) + (0 if held else experts), why=why, storage=storage,
            parked=made.ram.bytes_of(least.PARKED), plan=_words(made, taken),
        )  # fmt: skip

    def __str__(self) -> str:
        if self.device == CPU:
            return ", ".join(filter(None, (f"cpu: {shown_bytes(self.weights)} of weights", self.storage)))
        experts = "" if self.share == 1 else f" (among them {self.share:.0%} of the experts; {self.storage})"
        return (
            f"{self.device} ({self.name}): {shown_bytes(self.weights)} of weights{experts}, "
            f"{shown_bytes(self.cache)} for "
            f"conversations of together {self.cells:,} tokens, {shown_bytes(self.work)} of work space"
        )


def _words(made: "Plan", taken: "Taken | None") -> tuple[str, ...]:
    measured = () if taken is None else (str(taken),)
    return (*made.sentences, *accounts(made), *measured)
