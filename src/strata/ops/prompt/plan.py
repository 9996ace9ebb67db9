"""The plan of a prompt's experts: pairs (row, place in the router's order) sorted by expert, cut into tiles.

A program for each expert goes through all choices, once to count them, once to write their numbers where the experts
before it end. 40,960 choices are 160 KB, which stay in L2 for all 512 programs; nothing is added atomically, so the
order is rising and always the same.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["topk"])
def count(ids, counts, topk, sizes, BLOCK: tl.constexpr):
    """How many pairs each expert has. Grid: (E,).

    Args:
        ids: chosen experts, int32 [T, topk].
        counts: int32, its first is T.
        sizes: int32 [E], out.
    """
    expert = tl.program_id(0)
    pairs = tl.load(counts) * topk
    total = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, pairs, BLOCK):
        pair = first + tl.arange(0, BLOCK)
        total += (tl.load(ids + pair, mask=pair < pairs, other=-1) == expert).to(tl.int32)
    tl.store(sizes + expert, tl.sum(total, 0))


@triton.jit(do_not_specialize=["topk", "E"])
def arrange(ids, counts, topk, E, sizes, pairs, tile_expert, tile_first, tile_size, totals, TILE: tl.constexpr,
            ROOM: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Write each expert's pairs and tiles. Grid: (E,).

    Args:
        ids, counts, sizes: as for `count`.
        pairs: int32 [T * topk], out: numbers ``row * topk + place``, by expert, rising.
        tile_expert: int32 [most tiles], out.
        tile_first: int32 [most tiles], out: where in ``pairs`` a tile starts.
        tile_size: int32 [most tiles], out: how many pairs it has.
        totals: int32, out: how many tiles there are.
        TILE: most pairs of a tile.
        ROOM: a power of two, at least E.
    """
    expert = tl.program_id(0)
    e = tl.arange(0, ROOM)
    size = tl.load(sizes + e, mask=e < E, other=0)
    before = (e < expert).to(tl.int32)
    start = tl.sum(size * before, 0)
    tiles = (size + TILE - 1) // TILE
    tile = tl.sum(tiles * before, 0)
    own = tl.load(sizes + expert)
    if expert == 0:
        tl.store(totals, tl.sum(tiles, 0))
    for first in range(0, own, TILE):
        at = tile + first // TILE
        tl.store(tile_expert + at, expert)
        tl.store(tile_first + at, start + first)
        tl.store(tile_size + at, tl.minimum(own - first, TILE))
    if own > 0:
        all_pairs = tl.load(counts) * topk
        for first in range(0, all_pairs, BLOCK):
            pair = first + tl.arange(0, BLOCK)
            mine = (tl.load(ids + pair, mask=pair < all_pairs, other=-1) == expert).to(tl.int32)
            tl.store(pairs + start + tl.cumsum(mine, 0) - 1, pair, mask=mine != 0)
            start += tl.sum(mine, 0)
