"""What a window launches besides products, at the shapes of the real model."""

from dataclasses import replace
from typing import Any

from strata.model.candidates import MOST
from strata.ops import dependent
from strata.ops.choice import gpu as choice
from strata.ops.choice import look
from strata.ops.gdn import gpu as gdn
from strata.ops.hyper_connection import gpu as hc
from strata.ops.hyper_connection.gates import up_mix
from strata.ops.kernels.entry import Kernel
from strata.ops.moe import gpu as moe
from strata.ops.ngram import gpu as ngram
from strata.ops.qsa import gpu as qsa
from strata.ops.qsa.choose import choose
from strata.ops.rows import gpu as rows

OTHERS = frozenset(("look.adjust", "look.accept", "look.draw"))
"""What CI does not take the time to compile: nothing in it that the others do not have."""

_F, _I, _L, _B = "*fp32", "*i32", "*i64", "*bf16"
_ROWS = {"q": "*i8", "s": _F, "sums": _F}
_HEADS = {"NK": 16, "NV": 48, "D": 128}
_STREAMS = {"H": 2560, "S": 4, "BLOCK": 4096}
_CELLS = {"slots": _I, "seen": _I, "pages": _I, "page_count": "i32"}


def _kernel(
    name: str, function: Any, signature: dict[str, str], constants: dict[str, Any], warps: int = 1, registers: int = 0
) -> Kernel:
    pointers = tuple(key for key, kind in signature.items() if kind.startswith("*"))
    found = Kernel(name, function, signature, constants, pointers, warps, normative=False)
    return replace(found, options=found.options | {"maxnreg": registers}) if registers else found


def window(arch: int) -> list[Kernel]:
    """All of them; attention multiplies on tensor cores where there are some for bfloat16."""
    pdl = {"PDL": arch >= dependent.FIRST}
    streams, attention = [*_streams(pdl), *_gdn(pdl)], _qsa(pdl, split=arch >= 80)
    return [*streams, *attention, *_ngram(pdl), *_routes(pdl), *_rest(pdl), *_choice(pdl)]


def _streams(pdl: dict[str, bool]) -> list[Kernel]:
    due = dict.fromkeys(("residual", "rows", "weights", "shared", "shared_weights", "shares", "squares"), _F)
    norm = {**dict.fromkeys(("residual", "squares", "scales"), _F), "eps": "fp32", "xn": _F, **_ROWS}
    low = {"y": _F, "x": _F, **_ROWS, "inject": _F, "xn": _F, "shares": _F}
    streams = {"H": 2560, "S": 4, "BLOCK": hc.PIECE, **pdl}
    parts, pieces, piece = 10240 // hc.PART, 2560 // hc.PIECE, hc.PIECE // 32
    write = streams | {"PARTS": parts, "WRITE": True}
    product = {"w": "*u8", "table": "*i16", "q": _I, **dict.fromkeys(("s", "z", "scale"), _F)}
    rank = {"R": 320, "S": 4, "BLOCK": 512, "WIDTH": 10240, "PART": hc.PART, "PARTS": parts, **pdl}
    return [
        *(
            _kernel(f"hc.write{name}", hc.write, due, write | {"TOPK": topk})
            for name, topk in (("", 0), (".experts", 10))
        ),
        _kernel("hc.norm", hc.norm, norm, streams | {"COUNT": pieces, "ROOM": 32}, piece),
        _kernel("hc.low", hc.low, low, rank, 16),
        *(
            Kernel(
                f"hc.up_mix.Q8_0.T{rows}", up_mix,
                product | {"xn": _F, "m": _F, "m_q": "*i8", "m_s": _F, "m_z": _F, "rows": "i32"},
                {"KIND": "Q8_0", "T": rows, "S": 4, "WIDTH": 2560, "L": 4, "B": 10, "D": 3, "SCALED": False, **pdl},
                (*product, "xn", "m", "m_q", "m_s", "m_z"), 4, normative=False,
            )
            for rows in (1, 2)
        ),
        _kernel("hc.mix", hc.mix, {"gates": _F, "xn": _F, "m": _F, **_ROWS}, streams, piece),
        _kernel("hc.spread", hc.spread, {"x": _F, "residual": _F}, streams | {"BLOCK": 1024}, 4),
    ]  # fmt: skip


def _routes(pdl: dict[str, bool]) -> list[Kernel]:
    route = {"logits": _F, "experts": _I, "weights": _F, "shared": _F}
    plan = {**dict.fromkeys(("slot_of", "entries", "slots", "counts", "pairs", "totals"), _I), "shared_slot": "i32"}
    choice = {"E": 512, "TOPK": 10, "COUNT": 16, **pdl}
    return [
        _kernel("moe.route", moe.route, route, choice),
        *(
            _kernel(
                f"moe.route_and_plan.T{rows}", moe.route_and_plan, route | plan,
                choice | {"T": rows, "ROWS": rows, "PLACES": 16, "M": 16 * rows}, rows,
            )
            for rows in (1, 8)
        ),
    ]  # fmt: skip


def _gdn(pdl: dict[str, bool]) -> list[Kernel]:
    given = dict.fromkeys(("u", "x", "gates", "tails"), _F) | {"slots": _I, "first": _I}
    weights = {"taps": _F, "a": _F, "dt": _F}
    states = {"states": _F, "places": _I, "spares": _I}
    kept = dict.fromkeys(("mixed", "steps", "decay"), _F)
    accepted = {"first": _I, "accepted": _I, "total": "i32"}
    heads = _HEADS | {"LAYERS": 36, "VALUES": gdn.VALUES, **pdl}
    tails = {"u": _F, "tails": _F, "slots": _I, **accepted}
    out = {"kept": _F, **kept, "strength": _F, "out": _F, "layer": "i32"}
    more = {"TAPS": 4, "WIDTH": 2560, "PART": gdn.PART}
    gate = {"out": _F, "z": _F, "norm": _F, "eps": "fp32", "gated": _F, **_ROWS}
    return [
        _kernel("gdn.window", gdn.window, {**given, **weights, **states, **out}, heads | more, gdn.WARPS),
        _kernel("gdn.gate", gdn.gate, gate, {"NV": 48, "D": 128, **pdl}),
        _kernel("gdn.replay", gdn.replay, {**kept, **states, **accepted}, heads, 4),
        _kernel("gdn.shift", gdn.shift, tails, {"LAYERS": 36, "CHANNELS": 10240, "TAPS": 4, "BLOCK": 1024, **pdl}, 4),
    ]


def _qsa(pdl: dict[str, bool], *, split: bool) -> list[Kernel]:
    """With keys and values in bfloat16, and what differs with eight bits."""
    budget = {"RATIO": 4, "BUDGET": 512, **pdl}
    turns = {**dict.fromkeys(("cos", "sin"), _F), "positions": _I}
    given = {**dict.fromkeys(("qg", "k", "v"), _F), **turns, "q_norm": _F, "k_norm": _F, "eps": "fp32"}
    asked = {"iq": _F, "ik": _F, **turns, "starts": _I, "iq_norm": _F, "ik_norm": _F, "eps": "fp32"}
    cells = {"q_out": _F, "keys": _B, "values": _B}
    pooled = {"iq_out": _F, "raw": _F, "blocks": _F, "left": _F, "counts": _I, "bins": _I}
    parts = {"part": _F, "peak": _F, "weight": _F}
    heads = {"NH": 24, "NKV": 2, "HD": 256, "HALF": 32, **pdl}
    indexed = {"IH": 4, "ID": 128, "HALF": 32, "RATIO": 4, "FIRST": 0, **pdl}
    indexed |= dict.fromkeys(("JOINED", "WINDOW", "COUNTED"), True)
    attend = {"q": _F, "keys": _B, "values": _B, "chosen": _I, **_CELLS, **parts}
    merge = {**parts, "qg": _F, "seen": _I, "gated": _F, **_ROWS}
    scored = {"scores": _F, "peaks": _F, "bins": _I, "score_count": "i32", "seen": _I, "chosen": _I}
    where = dict.fromkeys(("homes", "seen", "first", "pages"), _I) | {"page_count": "i32"}
    score = {"iq": _F, "blocks": _F, **where, "out": _F, "peaks": _F, "bins": _I, "out_count": "i32"}
    tiles = {"TILE": 8, "COUNTED": True}
    lots = {"IH": 4, "ID": 128, "BLOCK": 64, "LANES": 32}
    heads_ = {"NH": 24, "HD": 256, "CELLS": 64, "PARTS": 33, **budget}
    eight, attended = {"keys": "*u8", "values": "*u8"}, heads_ | {"NKV": 2, "HEADS": 16, "LANES": 128, "SPLIT": split}
    narrow = {"HD": 64, "LANES": 64}  # less than 128 bytes a head, as Pebble's
    return [
        _kernel("qsa.prepare", qsa.prepare, {**given, **_CELLS, **cells}, heads),
        _kernel("qsa.prepare.q8", qsa.prepare, {**given, **_CELLS, **cells, **eight}, heads),
        _kernel("qsa.index", qsa.index, {**asked, **_CELLS, "begins": _I, **pooled}, indexed),
        _kernel("qsa.score", qsa.score, score, budget | tiles | lots, 4),
        _kernel("qsa.choose", choose, scored, budget | tiles, 32, 48),
        _kernel("qsa.attend", qsa.attend, attend, attended, 8),
        _kernel("qsa.attend.q8", qsa.attend, attend | eight, attended, 8),
        _kernel("qsa.attend.q8.narrow", qsa.attend, attend | eight, attended | narrow, 8),
        _kernel("qsa.merge", qsa.merge, merge, heads_ | {"FEW": 8, "ROOM": 64, "LANES": 64}, 4),
    ]


def _ngram(pdl: dict[str, bool]) -> list[Kernel]:
    where = {"slots": _I, "first": _I, "owner": _I}
    hashes = {"ids": _I, "history": _I, **where, "multipliers": _L, "sizes": _L, "offsets": _L, "out": _L}
    gate = dict.fromkeys(("key", "value", "residual", "norm_key", "norm_query", "norm_conv"), _F)
    smooth = {"residual": _F, "gated": _F, "normed": _F, "tails": _F, **where, "taps": _F}
    shift = {"normed": _F, "ids": _I, "tails": _F, "history": _I, "slots": _I, "first": _I, "accepted": _I}
    wide = {"WIDTH": 10240, "TAPS": 4, "N": 3, "BLOCK": 1024}
    return [
        _kernel("ngram.numbers", ngram.numbers, hashes, {"N": 3, "HEADS": 8, "EOS": 248044, **pdl}),
        _kernel("ngram.gate", ngram.gate, {**gate, "eps": "fp32", "gated": _F, "normed": _F}, _STREAMS | pdl, 16),
        _kernel("ngram.smooth", ngram.smooth, smooth, wide | pdl | {"BLOCK": 256}, 4),
        _kernel("ngram.shift", ngram.shift, shift, wide, 4),
    ]


def _rest(pdl: dict[str, bool]) -> list[Kernel]:
    table = {"w": "*u8", "table": "*i16", "ids": _L, "out": _F, "N": "i32", "B": "i32"}
    return [
        _kernel("rows.Q4_K", rows.gather, table | {"ids": _I}, {"KIND": "Q4_K", "BLOCKS": 8, **pdl}, 4),
        _kernel("rows.IQ4_NL", rows.gather, table, {"KIND": "IQ4_NL", "BLOCKS": 8, **pdl}, 4),
    ]  # fmt: skip


def _choice(pdl: dict[str, bool]) -> list[Kernel]:
    parts = {"peaks": _F, "places": _I, "sums": _F, "faults": _I}
    best = {**parts, "tokens": _I, "bad": _I, "told": _I, "PARTS": "i32"}
    accept = dict.fromkeys(("ids", "tokens", "bad", "stops", "first", "accepted", "kept"), _I)
    given = {"logits": _F, "banned": "*i8", **parts, "V": "i32", "PARTS": "i32"}
    link = dict.fromkeys(("tokens", "bad", "told", "floor", "ids", "found"), _I)
    kernels = [
        _kernel("choice.accept", choice.accept, accept, {"ROWS": 8, "STOPS": 16, **pdl}),
        _kernel("choice.link", choice.link, link, pdl),
    ]
    kernels += _look(pdl)
    for top, entries in ((1, 128), (20, 4096)):
        sizes = {"TOP": top, **pdl}
        kernels += [
            _kernel(f"choice.best_parts.{top}", choice.best_parts, given, sizes | {"BLOCK": 2048}, 4),
            _kernel(f"choice.best.{top}", choice.best, best, sizes | {"BLOCK": 128, "ENTRIES": entries}, 4),
        ]
    return kernels


def _look(pdl: dict[str, bool]) -> list[Kernel]:
    sizes = {"V": "i32", "PARTS": "i32"}
    lists = {"codes": _I, "shifts": _F, "repetition": _F}
    rows = {"logits": _F, "y": _F, "banned": "*i8", "masks": _I, "scales": _F}
    own = {"peaks": _F, "sums": _F, "faults": _I}
    parts = {"tops": _F, "weights": _F, "counts": _I, "ids": _I, "values": _F}
    place = {"found": _I, "where": _F, "told": _I}
    each = {"BLOCK": 2048, "MOST": MOST, "MASKED": True, **pdl}
    joined = {"logits": _F, **own, **parts, "scales": _F, "draws": _F, **place, "picked": _F, **sizes}
    settled = {
        "told": _I,
        **dict.fromkeys(("picked", "scales", "draws", "ks", "ps", "ms"), _F),
        "tokens": _I,
        "bad": _I,
    }
    accept = dict.fromkeys(("ids", "tokens", "bad", "stops", "first", "accepted", "kept"), _I)
    return [
        _kernel(
            "look.adjust", look.adjust, {"logits": _F, "y": _F, **lists, "V": "i32", "M": "i32"},
            {"BLOCK": 1024, **pdl}, 4,
        ),
        _kernel("look.parts", look.look_parts, {**rows, **own, **parts, **sizes, "WORDS": "i32"}, each, 4),
        _kernel("look.join", look.look, joined, {"BLOCK": 128, "STEP": 1024, "MOST": MOST, **pdl}, 4),
        _kernel("look.settle", look.settle, settled, {"MOST": MOST, **pdl}, 4),
        _kernel("look.accept", look.accept, accept, {"ROWS": 8, "STOPS": 16, **pdl}),
        _kernel("look.draw", look.draw, {**rows, **place, **sizes, "WORDS": "i32"}, each, 4),
    ]  # fmt: skip
