"""Which device a model runs on, and what it takes there. No torch."""

import re
from dataclasses import dataclass

from strata.errors import RequestError
from strata.loading.shown import shown_bytes

AUTO, CPU = "auto", "cpu"

_NAMES = re.compile(r"auto|cpu|cuda(:\d{1,3})?")

MEANING = "auto, cpu, cuda, or cuda:N for the Nth GPU"


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
        storage: what of it is not in memory, in a sentence's part; empty if all is.
        share: of the routed experts, those that have slots on the card; the others are in RAM.
        slots: bytes of `weights` that are for slots of routed experts, where these lie in tiers; else 0.
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

    def __str__(self) -> str:
        if self.device == CPU:
            return ", ".join(filter(None, (f"cpu: {shown_bytes(self.weights)} of weights", self.storage)))
        experts = "" if self.share == 1 else f" (among them {self.share:.0%} of the experts; all are in RAM)"
        return (
            f"{self.device} ({self.name}): {shown_bytes(self.weights)} of weights{experts}, "
            f"{shown_bytes(self.cache)} for "
            f"conversations of together {self.cells:,} tokens, {shown_bytes(self.work)} of work space"
        )
