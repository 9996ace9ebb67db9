"""What a prompt pass launches, at the shapes of the real model, for short and long passes."""

from typing import Any

from strata.ops.kernels.entry import Kernel
from strata.ops.prompt import attention, delta, expand, experts, heads, plan, prepare, product, streams
from strata.ops.prompt.order import order
from strata.ops.prompt.tiles import (
    Tile,
    attention_tile,
    dense_tile,
    exact_tile,
    expert_options,
    expert_tile,
    low_tile,
    mean_tile,
)

FIRST = 80
"""Compute capability times ten from which prompts have kernels of their own: tensor cores for float16 in Triton."""

_F, _I, _H, _B, _L = "*fp32", "*i32", "*fp16", "*bf16", "*i64"
_ROOMS = (32, 512, 4096)
_HEADS = {"NK": 16, "NV": 48, "D": 128}
_STREAMS = {"H": 2560, "S": 4, "BLOCK": 4096}
_ATTENTION = {"NH": 24, "NKV": 2, "HD": 256, "RATIO": 4, "BUDGET": 512}


CORE = frozenset(
    f"prompt.{name}"
    for name in (
        *("product.4096", "low_rank.4096", "gated_mean.4096", "exact.4096", "planes.Q5_K"),
        *("gate_up.IQ3_XXS.512", "gate_up.IQ3_XXS.4096", "gate_up.Q4_K.32", "down.IQ4_NL.4096"),
        *("arrange.4096", "count", "order", "combine", "convolve", "gate", "tail", "pairs", "scan"),
        *(
            "cells",
            "score",
            "dense",
            "sparse",
            "sparse.q8",
            "write_norm",
            "write",
            "halve",
            "swiglu",
            "floats.fp32",
            "finely",
        ),
    )
)
"""What CI has the time to compile."""


def _kernel(
    name: str, function: Any, signature: dict[str, str], constants: dict[str, Any], warps: int = 4, stages: int = 1,
    aligned: tuple[str, ...] = (), **more: Any,
) -> Kernel:  # fmt: skip
    pointers = tuple(key for key, kind in signature.items() if kind.startswith("*"))
    options = {"num_stages": stages, "enable_fp_fusion": False, **more}
    return Kernel(
        f"prompt.{name}", function, signature, constants, pointers + aligned, warps, normative=False, options=options
    )


def _tiled(name: str, function: Any, signature: dict[str, str], tile: Tile, **constants: Any) -> Kernel:
    aligned = ("K",) if "K" in signature else ()
    return _kernel(name, function, signature, tile.constants() | constants, tile.warps, tile.stages, aligned)


def prompt(arch: int) -> list[Kernel]:
    """All of them; none where prompts are read by the kernels of windows."""
    if arch < FIRST:
        return []
    return [*_products(arch), *_experts(arch), *_gdn(), *_qsa(arch), *_rest()]


def _products(arch: int) -> list[Kernel]:
    sizes = {"N": "i32", "K": "i32"}
    plain = {"x": _H, "w": _H, "counts": _I, "out": _F, **sizes}
    low = {"x": _H, "w": _H, "counts": _I, "low": _H, "strengths": _F, "R": "i32", "K": "i32"}
    mean = {"low": _H, "w": _H, "xn": _H, "counts": _I, "mean": _H, "rest": _H}
    exact = {"x": _H, "x_rest": _H, "w": _H, "w_rest": _H, "counts": _I, "out": _F, **sizes}
    found = []
    for room in _ROOMS:
        found += [
            _tiled(f"product.{room}", product.product, plain, dense_tile(arch, room), EVEN=True),
            _tiled(f"low_rank.{room}", product.low_rank, low, low_tile(arch, room), S=4, EVEN=True),
            _tiled(
                f"gated_mean.{room}", product.gated_mean, mean, mean_tile(arch, room), H=2560, S=4, R=320, EVEN=True
            ),
            _tiled(f"exact.{room}", product.exact, exact, exact_tile(arch, room), EVEN=True),
        ]
    planes = {"w": "*u8", "table": "*i16", "scale": _F, "out": _H, "N": "i32", "B": "i32"}
    for kind in ("Q5_K", "Q6_K", "Q8_0"):
        shape = {"KIND": kind, "SCALED": False, "H": 32, "L": 4, "EVEN": True}
        found.append(_kernel(f"planes.{kind}", expand.planes, planes, shape))
    both = {"w": _F, "out": _H, "rest": _H, "size": "i32"}
    found.append(_kernel("finely", expand.finely, both, {"BLOCK": 2048}))
    for kind in (_F, _B):
        signature = {"w": kind, "out": _H, "size": "i32"}
        found.append(_kernel(f"floats.{kind[1:]}", expand.floats, signature, {"BLOCK": 2048}))
    return found


def _experts(arch: int) -> list[Kernel]:
    lists = dict.fromkeys(("pairs", "tile_expert", "tile_first", "tile_size", "starts"), _I)
    base, ranks = {"slots_base": "*u8", "stride": "i32"}, {"low": "i32", "high": "i32"}
    up = {
        **base, "up_at": "i32", "gate_grid": "*i16", "up_grid": "*i16", "gate_scale": _F, "up_scale": _F, "x": _H,
        "h": _H, "slot_of": _I, **lists, **ranks, "N": "i32", "B": "i32", "topk": "i32",
    }  # fmt: skip
    down = {
        **base, "down_at": "i32", "grid": "*i16", "scale": _F, "h": _H, "y": _H, "slot_of": _I, **lists, **ranks,
        "N": "i32", "B": "i32",
    }  # fmt: skip
    found = []
    for room in _ROOMS:
        tile = expert_tile(arch, room, 10, 512)
        limit = {key: value for key, value in expert_options(arch, tile).items() if key == "maxnreg"}
        shape = {"BM": tile, "EVEN": True, "SCALED": False}
        found += [
            _kernel(
                f"gate_up.{kind}.{room}", experts.gate_up, up, shape | {"GATE": kind, "UP": kind},
                aligned=("stride", "up_at"), **limit,
            )
            for kind in ("IQ3_XXS", "Q4_K", "IQ2_S")
        ]  # fmt: skip
        found += [
            _kernel(
                f"down.{kind}.{room}", experts.down, down, shape | {"KIND": kind},
                aligned=("stride", "down_at"), **limit,
            )
            for kind in ("IQ4_NL", "Q8_0")
        ]  # fmt: skip
        ints = {"ids": _I, "counts": _I, "topk": "i32", "E": "i32", "sizes": _I, "rank": _I, **lists}
        found.append(_kernel(f"arrange.{room}", plan.arrange, ints, {"TILE": tile, "ROOM": 512, "BLOCK": 4096}))
    count = {"ids": _I, "counts": _I, "topk": "i32", "sizes": _I}
    ordered = {"x": _H, "bounds": _I, "out": _H, "K": "i32", **ranks}
    combine = {"y": _H, "shares": _F, "shared": _H, "shared_shares": _F, "counts": _I, "out": _F, "N": "i32"}
    return [
        *found,
        _kernel("count", plan.count, count, {"BLOCK": 4096}),
        _kernel("order", order, ordered, {"SPAN": True, "ROWS": 16}, aligned=("K",)),
        _kernel("combine", experts.combine, {**combine, "topk": "i32"}, {"BLOCK": 512}, aligned=("N",)),
    ]


def _gdn() -> list[Kernel]:
    gates = {"mixed": _H, "decay": _F, "strength": _F}
    chunk = {"solved": _H, "seen": _H, "since": _F, "until": _F}
    before = {
        "u": _F, "width": "i32", "gates": _F, "tails": _F, "slots": _I, "counts": _I, "taps": _F, "a": _F, "dt": _F,
        **gates, "layer": "i32",
    }  # fmt: skip
    scan = {
        "mixed": _H, "strength": _F, **chunk, "states": _F, "places": _I, "spares": _I, "lengths": _I, "counts": _I,
        "out": _F, "layer": "i32",
    }  # fmt: skip
    gate = {"out": _F, "z": _F, "width": "i32", "norm": _F, "eps": "fp32", "counts": _I, "gated": _H}
    tail = {"u": _F, "width": "i32", "tails": _F, "slots": _I, "counts": _I, "out": _F, "layer": "i32"}
    rows = {"ROWS": 16}
    return [
        _kernel("convolve", heads.convolve, before, _HEADS | rows | {"LAYERS": 36, "TAPS": 4}, aligned=("width",)),
        _kernel("gate", heads.gate, gate, {"NV": 48, "D": 128} | rows, aligned=("width",)),
        _kernel(
            "tail", heads.tail, tail, {"LAYERS": 36, "CHANNELS": 10240, "TAPS": 4, "BLOCK": 1024}, aligned=("width",)
        ),
        _kernel("pairs", delta.pairs, {**gates, "lengths": _I, "counts": _I, "system": _F, **chunk}, _HEADS),
        _kernel("scan", delta.scan, scan, _HEADS | {"LAYERS": 36, "VALUES": 32}, 4, 2),
    ]


def _qsa(arch: int) -> list[Kernel]:
    tile, warps = attention_tile(arch)
    table = {"pages": _I, "page_count": "i32"}
    where = {"slots": _I, "lengths": _I, "counts": _I, **table}
    cached = {"keys": _B, "values": _B, "qg": _F}
    given = {**dict.fromkeys(("qg", "k", "v", "iq", "ik", "cos", "sin"), _F), "positions": _I, "starts": _I}
    norms = {**dict.fromkeys(("q_norm", "k_norm", "iq_norm", "ik_norm"), _F), "eps": "fp32"}
    places = {"slots": _I, "seen": _I, "begins": _I, **table}
    cells = {"q_out": _F, "iq_out": _F, "keys": _B, "values": _B, "raw": _F, "blocks": _F, "left": _F, "counts": _I}
    heads_ = {"NH": 24, "NKV": 2, "HD": 256, "IH": 4, "ID": 128, "HALF": 32, "RATIO": 4}
    score = {"iq": _F, "blocks": _F, **where, "out": _F, "peaks": _F, "out_count": "i32", "begin": "i32"}
    eight = {"keys": "*u8", "values": "*u8"}
    attended = [
        kernel
        for name, stored in (("", {}), (".q8", eight))
        for kernel in (
            _kernel(f"cells{name}", prepare.cells, {**given, **norms, **places, **cells, **stored}, heads_, 1),
            _kernel(
                f"dense{name}", attention.dense, {"q": _F, **cached, **where, "gated": _H, **stored},
                _ATTENTION | {"BM": tile, "SPLIT": True}, warps,
            ),
            _kernel(
                f"sparse{name}", attention.sparse,
                {"q": _F, **cached, "chosen": _I, **where, "gated": _H, "begin": "i32", **stored},
                _ATTENTION | {"HEADS": 16, "SPLIT": True},
            ),
        )
    ]  # fmt: skip
    return [
        *attended,
        _kernel(
            "score", attention.score, score,
            {"IH": 4, "ID": 128, "RATIO": 4, "BUDGET": 512, "ROWS": 32, "BLOCKS": 64, "TILE": 8},
        ),
    ]  # fmt: skip


def _rest() -> list[Kernel]:
    due = {"residual": _F, "out": _F, "strengths": _F}
    norm = {"norm": _F, "eps": "fp32", "counts": _I, "xn": _H}
    return [
        _kernel("write_norm", streams.write_norm, {**due, **norm}, _STREAMS | {"WRITE": True}),
        _kernel("write", streams.write, {**due, "counts": _I}, _STREAMS),
        _kernel("swiglu", streams.swiglu, {"x": _F, "counts": _I, "out": _H}, {"N": 640, "BLOCK": 512}),
        _kernel("halve", streams.halve, {"x": _F, "out": _H, "size": "i32"}, {"BLOCK": 2048}),
    ]
