"""What a layer launches that misses experts, at the shapes of the real model."""

import torch

from strata.experts.misses.mailbox import Mailbox
from strata.ops.dependent import FIRST
from strata.ops.experts.slots import SlotLayout
from strata.ops.kernels.entry import Kernel
from strata.ops.tiers import kernels
from strata.ops.tiers.bring import WARPS, Source
from strata.ops.tiers.tier import BLOCK, BOX_WARPS, TAKEN, box_constants

_I, _L, _F = "*i32", "*i64", "*fp32"
_TYPES = (("IQ3_XXS", "IQ3_XXS", "IQ4_NL"), ("IQ2_S", "IQ2_S", "IQ3_XXS"), ("Q4_K", "Q4_K", "Q5_1"), ("Q8_0", "Q8_0", "Q8_0"))


def tiers(arch: int) -> list[Kernel]:
    """All of them; experts of four sets of types are brought."""
    pdl = {"PDL": arch >= FIRST}
    box, width = Mailbox(10, 2560), 2560
    plan = dict.fromkeys(("experts", "counts", "pairs", "totals"), _I)
    link = dict.fromkeys(("link_experts", "link_counts", "link_pairs", "link_totals"), _I)
    publish = {
        **plan, "q": _I, "s": _F, "box": "*u8", "state": _L, "split": _I, **link, "visits": _I, "sums": _L,
        "layer": "i32", "T": "i32",
    }  # fmt: skip
    given = box_constants(box)
    results = {"AT_RESULTS": given.pop("AT_RESULTS")}
    common = {"WIDTH": width, "M": 64}
    found = [
        ("tiers.publish", kernels.publish, publish, {**common, **given, "BLOCK": BLOCK}, BOX_WARPS),
        ("tiers.await_host", kernels.await_host, {"box": "*u8", "state": _L, "sums": _L, "layer": "i32"}, {}, 1),
        (
            "tiers.take", kernels.take, {"counts": _I, "pairs": _I, "box": "*u8", "state": _L, "y": _F},
            {**common, **results, "BLOCK": TAKEN}, 4,
        ),
    ]  # fmt: skip
    for types in _TYPES:
        if types[2] == "IQ3_XXS":
            continue  # 640 columns are no whole blocks of it
        layout = SlotLayout(*types, width, 640)
        source = Source(layout, *(torch.empty((1, *shape), dtype=torch.uint8) for shape in layout.stored))
        constants = {name: value for name, value in source.constants.items() if name != "PIECES"}
        raw = dict.fromkeys(("gate_raw", "up_raw", "down_raw"), "*u8") | dict.fromkeys(("gate_each", "up_each", "down_each"), "i64")
        words = dict.fromkeys(("gate_words", "up_words", "down_words"), _I)
        signature = {
            **raw, **words, "stage": "*u8", "stage_each": "i32", "slots_base": "*u8", "stride": "i32", "up_at": "i32",
            "down_at": "i32", "experts": _I, "slots": _I, "totals": _I,
        }  # fmt: skip
        found.append((f"tiers.bring.{types[0]}.{types[2]}", kernels.bring, signature, constants, WARPS))
    return [
        Kernel(
            name, function, signature, {**constants, **pdl},
            tuple(key for key, kind in signature.items() if kind not in {"i32"}) + tuple({"stage_each", "stride", "up_at", "down_at"} & set(signature)),
            warps, normative=False,
        )
        for name, function, signature, constants, warps in found
    ]  # fmt: skip
