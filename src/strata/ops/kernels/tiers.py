"""What a layer launches that misses experts, at the shapes of the real model."""

from typing import Any

from strata.experts.misses.mailbox import Mailbox
from strata.ops.dependent import FIRST
from strata.ops.experts.slots import SlotLayout
from strata.ops.kernels.entry import Kernel
from strata.ops.tiers import kernels
from strata.ops.tiers.bring import DOWN, GATE_UP, WARPS, constants
from strata.ops.tiers.layer import BLOCK, BOX_WARPS, TAKEN, box_constants

_I, _L, _F, _U = "*i32", "*i64", "*fp32", "*u8"
_HIDDEN, _INNER, _TOPK = 2560, 640, 10
_TYPES = (
    ("IQ3_XXS", "IQ3_XXS", "IQ4_NL"),
    ("IQ2_S", "IQ2_S", "IQ4_NL"),
    ("Q4_K", "Q4_K", "Q5_1"),
    ("Q8_0", "Q8_0", "Q8_0"),
)
_PARTS = ((GATE_UP + DOWN, ""), (GATE_UP, ".gate_up"), (DOWN, ".down"))
_STRIDES = ("stage_each", "stride", "up_at", "down_at")


def tiers(arch: int) -> list[Kernel]:
    """All of them; experts of four sets of types are brought, whole and in parts."""
    pdl = {"PDL": arch >= FIRST}
    box = box_constants(Mailbox(_TOPK, _HIDDEN))
    results = {"AT_RESULTS": box.pop("AT_RESULTS")}
    common = {"WIDTH": _HIDDEN, "M": 64, **pdl}
    plan = dict.fromkeys(("experts", "counts", "pairs", "totals"), _I)
    link = dict.fromkeys(("link_experts", "link_counts", "link_pairs", "link_totals"), _I)
    shared = {"box": _U, "state": _L}
    publish = {
        **plan, "q": _I, "s": _F, **shared, "split": _I, **link, "hosts": _I, "visits": _I, "sums": _L, "places": _L,
        "nobody": "i64", "layer": "i32", "T": "i32",
    }  # fmt: skip
    awaiting = {**shared, "sums": _L, "layer": "i32"}
    taking = {"counts": _I, "pairs": _I, "hosts": _I, **shared, "y": _F}
    halves = [
        kernel
        for disk, tail in ((False, ""), (True, ".disk"))
        for kernel in (
            _kernel(
                f"publish{tail}", kernels.publish, publish, {**common, **box, "BLOCK": BLOCK, "DISK": disk}, BOX_WARPS
            ),
            _kernel(f"take{tail}", kernels.take, taking, {**common, **results, "BLOCK": TAKEN, "DISK": disk}, 4),
        )
    ]
    return [
        _kernel("await_host", kernels.await_host, awaiting, pdl, 1),
        *halves,
        *(_bring(types, parts, tail, pdl) for types in _TYPES for parts, tail in _PARTS),
    ]


def _bring(types: tuple[str, str, str], parts: tuple[int, ...], tail: str, pdl: dict[str, bool]) -> Kernel:
    signature = {
        "base": _U, "places": _L, "stage": _U, "stage_each": "i32", "slots_base": _U, "stride": "i32",
        "up_at": "i32", "down_at": "i32", "experts": _I, "slots": _I, "totals": _I,
    }  # fmt: skip
    chosen = constants(SlotLayout(*types, _HIDDEN, _INNER), parts)
    return _kernel(f"bring.{types[0]}.{types[2]}{tail}", kernels.bring, signature, {**chosen, **pdl}, WARPS)


def _kernel(name: str, function: Any, signature: dict[str, str], chosen: dict[str, Any], warps: int) -> Kernel:
    aligned = tuple(key for key, kind in signature.items() if kind.startswith("*") or key in _STRIDES)
    return Kernel(f"tiers.{name}", function, signature, chosen, aligned, warps, normative=False)
