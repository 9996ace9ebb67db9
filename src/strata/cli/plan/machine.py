"""The machine that a plan is for: this one, or one in words."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from strata.cli.amounts import amount
from strata.cli.usage import UsageError
from strata.loading.device import CPU
from strata.memory.budget import Machine, Rates
from strata.memory.budget.machine import CARDS, card_for, known_card

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strata.loading.calibration import Record

_BYTES = Parameter(converter=amount)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MachineFlags:
    """A machine in words.

    Attributes:
        disk: Free space for a download, such as 200GB; without it, space is not checked.
        gpu: Take the speeds of this card: "RTX 3090", "RTX 4090", "RTX 5070" or "H200".
        vram_rate: GB/s of the GPU's memory, from its data sheet.
        tflops: TFLOPS of the GPU in float16 with float32 sums, dense.
        link_rate: GB/s from RAM to the GPU: 12 for PCIe 3.0 with 16 lanes, 25 for 4.0, 52 for 5.0.
        cpu_rate: GB/s of weights that the CPU's kernels get through: 40 with two channels of DDR5.
        disk_rate: GB/s of the SSD.
    """

    disk: Annotated[int | None, _BYTES] = None
    gpu: str | None = None
    vram_rate: float | None = None
    tflops: float | None = None
    link_rate: float | None = None
    cpu_rate: float | None = None
    disk_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A machine and where its numbers are from.

    Attributes:
        machine: it.
        vram_from: "given", "here", or the name of the card here.
        ram_from: likewise.
        tensor_cores: whether prompts are read on tensor cores there.
        record: what `strata calibrate` measured, where this is about the machine here; None if nothing was.
        note: why what was measured is not used, where there is something to say.
        card: name of the GPU here; empty where there is none, None where its memory alone is known.
        given: names of rates that the command line says.
    """

    machine: Machine
    vram_from: str
    ram_from: str
    tensor_cores: bool = True
    record: "Record | None" = None
    note: str = ""
    card: str | None = ""
    given: frozenset[str] = frozenset()

    def with_rates(self, types: "Mapping[str, float]", disk: str) -> Machine:
        """The machine with rates that were measured in place of those that are only assumed.

        Args:
            types: bytes of the model's experts by block type.
            disk: on which the model is.
        """
        if self.record is None:
            return self.machine
        from strata.loading.planning import measured_rates

        rates = measured_rates(
            self.machine.rates, self.record, types=types, disk=disk, card=self.card, given=self.given
        )
        return replace(self.machine, rates=rates)


def find(flags: MachineFlags, device: str, most: int | None = None, card_most: int | None = None) -> Found:
    """The machine that is meant.

    Args:
        flags: what the command line says of it.
        device: where to compute.
        most: bytes of main memory; None for what is available here.
        card_most: bytes of the GPU's memory, 0 without one; None for what is free here.

    Raises:
        UsageError: a rate that is none, or a card that is not known.
        RequestError: there is no such GPU here.
    """
    from strata.loading import ram
    from strata.loading.planning import available

    card, name = None, "given"
    vram = 0 if device == CPU else card_most
    cores = True
    if vram != 0 and flags.gpu is None:
        from strata.loading.gpu import TENSOR_CORES
        from strata.loading.gpu import find as find_card

        card = find_card(device)
        cores = card is None or card.capability >= TENSOR_CORES
    if vram is None:
        vram = 0 if card is None else card.free
        name = "here" if card is None else card.name
    rates = _rates(flags, vram, "" if card is None else card.name)
    here = ram.measure() if most is None else None
    free, limit = (most or 0, None) if here is None else (available(here, gpu=vram > 0), here.limit)
    machine = Machine(vram, free, limit, flags.disk, rates, None if card is None else card.lends)
    given = frozenset(name for name, rate in _given(flags).items() if rate is not None)
    named = None if vram and card is None else "" if card is None else card.name
    found = Found(machine, name, "given" if here is None else "available here", cores, card=named, given=given)
    if here is None or flags.gpu is not None:
        return found
    from strata.loading.calibration import known

    measured = known()
    return replace(found, record=measured.record, note=measured.why)


def _given(flags: MachineFlags) -> dict[str, float | None]:
    return {
        "vram": flags.vram_rate, "tflops": flags.tflops, "link": flags.link_rate, "cpu": flags.cpu_rate,
        "disk": flags.disk_rate,
    }  # fmt: skip


def _rates(flags: MachineFlags, vram: int, here: str) -> Rates:
    given = _given(flags)
    for name, rate in given.items():
        if rate is not None and not 0 < rate < 1e6:
            raise UsageError(f"--{name}-rate must be a number above 0, not {rate}".replace("tflops-rate", "tflops"))
    card = known_card(flags.gpu) if flags.gpu is not None else known_card(here)
    if flags.gpu is not None and card is None and None in {flags.vram_rate, flags.tflops}:
        raise UsageError(
            f"the speeds of {flags.gpu!r} are not known; give --vram-rate and --tflops from its data sheet, or one of "
            f"{', '.join(CARDS)} as --gpu"
        )
    known = set() if card is None else {"vram", "tflops"}
    name = card or card_for(vram)
    bandwidth, tflops = CARDS[name]
    found = Rates(vram=bandwidth, tflops=tflops, card=name)
    numbers: dict[str, Any] = {what: rate for what, rate in given.items() if rate is not None}
    found = replace(found, **numbers)
    if flags.vram_rate is not None:
        found = replace(found, card="")
    known |= {what for what, rate in given.items() if rate is not None}
    return replace(found, guessed=tuple(what for what in given if what not in known))
