"""The plan of a prompt's experts: pairs (row, place in the router's order) sorted by expert, cut into tiles.

A program for each expert goes through all choices, once to count them, once to write their numbers where the experts
before it end. 40,960 choices are 160 KB, which stay in L2 for all 512 programs; nothing is added atomically, so the
order is rising and always the same.

Experts stand in the order of a rank, so those that are computed together, because they are here or have come together,
are one run of tiles and of pairs: one plan serves a layer however many launches it takes.
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
def arrange(ids, counts, topk, E, sizes, rank, pairs, tile_expert, tile_first, tile_size, starts, TILE: tl.constexpr,
            ROOM: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Write each expert's pairs and tiles. Grid: (E,).

    Args:
        ids, counts, sizes: as for `count`.
        rank: int32 [E], each number once: which expert comes when.
        pairs: int32 [T * topk], out: numbers ``row * topk + place``, by rank of their expert, rising.
        tile_expert: int32 [most tiles], out.
        tile_first: int32 [most tiles], out: where in ``pairs`` a tile starts.
        tile_size: int32 [most tiles], out: how many pairs it has.
        starts: int32 [2, E + 1], out: of every rank the first tile and the first pair; last how many there are.
        TILE: most pairs of a tile.
        ROOM: a power of two, at least E.
    """
    expert = tl.program_id(0)
    e = tl.arange(0, ROOM)
    size = tl.load(sizes + e, mask=e < E, other=0)
    place = tl.load(rank + expert)
    before = (tl.load(rank + e, mask=e < E, other=ROOM) < place).to(tl.int32)
    start = tl.sum(size * before, 0)
    tiles = (size + TILE - 1) // TILE
    tile = tl.sum(tiles * before, 0)
    own = tl.load(sizes + expert)
    tl.store(starts + place, tile)
    tl.store(starts + E + 1 + place, start)
    if expert == 0:
        tl.store(starts + E, tl.sum(tiles, 0))
        tl.store(starts + 2 * E + 1, tl.sum(size, 0))
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
