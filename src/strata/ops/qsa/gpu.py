"""Sparse attention of a window on a GPU: index, score and choose; beside them prepare; then attend, merge.

Keys and values live in pages of `PAGE` cells; cell c of a conversation is row ``c % PAGE`` of page
``pages[slot, c // PAGE]``. Pooled block keys live in the same pages, ``PAGE / RATIO`` a page. Raw indexer keys, which
nobody needs once their block is complete, have no pages: that of cell c is row ``c % RING`` of the slot.

Keys and values are bfloat16 or, where the tables hold bytes, blocks of 32 in eight bits as on the CPU
(`strata.model.kv.q8`). The indexer's keys are float32 with either.

A row attends at most 2,051 cells whatever the context, so at 32K tokens a layer reads 4.2 MB of keys and values
(bfloat16; 2.4 in eight bits) and 4.2 MB of block keys, 2 us at 4.2 TB/s. Sums run in parts of fixed size over the list
of selected cells, and parts are merged in order: a row's bytes depend on its own list alone.

What a kernel has to know of a row comes with the window's numbers, one load deep: `slots`, where its conversation's
pages are, and `seen`, how many cells there are with its own. So what a launch costs follows from the length of the
conversation, not from what a captured graph has room for.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.device import CELL_BLOCK, load_block, sigmoid, store_cell, store_quantised
from strata.ops.qsa.pages import PAGE as CELLS
from strata.ops.qsa.pages import RING as RAW

PAGE = tl.constexpr(CELLS)
RING = tl.constexpr(RAW)


@triton.jit
def _store(cells, head, x, HD: tl.constexpr):
    """A head of a cell, in the type of the table."""
    if cells.dtype.element_ty == tl.uint8:
        store_cell(cells + head * (HD // 32 * CELL_BLOCK), x, HD // 32)
    else:
        tl.store(cells + head * HD + tl.arange(0, HD), x.to(cells.dtype.element_ty))


@triton.jit
def _angles(cos, sin, position, W: tl.constexpr, HALF: tl.constexpr):
    """Each lane's cosine and signed sine; lanes behind the first 2 HALF do not turn."""
    lane = tl.arange(0, W)
    turned = lane < 2 * HALF
    at = position * HALF + lane % HALF
    c = tl.load(cos + at, mask=turned, other=1.0)
    s = tl.load(sin + at, mask=turned, other=0.0)
    return c, tl.where(lane < HALF, -s, s)


@triton.jit
def _partner(W: tl.constexpr, HALF: tl.constexpr):
    """The lane each lane turns with."""
    lane = tl.arange(0, W)
    return tl.where(lane < 2 * HALF, (lane + HALF) % (2 * HALF), lane)


@triton.jit
def _normed(x, mate, weight, other, c, s, eps, W: tl.constexpr):
    """A head normalised and turned; `mate` and `other` are each lane's partner and its weight."""
    scale = 1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / W + eps)
    return x * scale * weight * c + mate * scale * other * s


@triton.jit
def _head(
    qg, k, v, cos, sin, position, q_norm, k_norm, eps, row, head, here, q_out, keys, values,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, HALF: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A head of the queries, the keys or the values."""
    lane, mate = tl.arange(0, HD), _partner(HD, HALF)
    norm = q_norm if head < NH else k_norm
    weight, other = tl.load(norm + lane), tl.load(norm + mate)
    c, s = _angles(cos, sin, position, HD, HALF)
    wait(PDL)
    if head < NH:
        source = qg + (row * NH + head) * 2 * HD
        x = _normed(tl.load(source + lane), tl.load(source + mate), weight, other, c, s, eps, HD)
        tl.store(q_out + (row * NH + head) * HD + lane, x)
    elif head < NH + NKV:
        h = head - NH
        source = k + (row * NKV + h) * HD
        x = _normed(tl.load(source + lane), tl.load(source + mate), weight, other, c, s, eps, HD)
        _store(keys, here * NKV + h, x, HD)
    else:
        h = head - NH - NKV
        x = tl.load(v + (row * NKV + h) * HD + lane)
        _store(values, here * NKV + h, x, HD)


@triton.jit
def _indexer(
    iq, ik, cos, sin, position, start, iq_norm, ik_norm, eps, row, begin, h, cell, end, here, iq_out, ring, blocks,
    left, IH: tl.constexpr, ID: tl.constexpr, HALF: tl.constexpr, RATIO: tl.constexpr, WINDOW: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """A head of the indexer's queries, or its key, with the block that the row completes, if it does."""
    lane, mate = tl.arange(0, ID), _partner(ID, HALF)
    norm = iq_norm if h < IH else ik_norm
    weight, other = tl.load(norm + lane), tl.load(norm + mate)
    c, s = _angles(cos, sin, position if h < IH else start, ID, HALF)
    wait(PDL)
    if h < IH:
        at = (row * IH + h) * ID
        x = _normed(tl.load(iq + at + lane), tl.load(iq + at + mate), weight, other, c, s, eps, ID)
        tl.store(iq_out + at + lane, x)
    else:
        key = tl.load(ik + row * ID + lane)
        if WINDOW:
            tl.store(ring + cell % RING * ID + lane, key)
        elif cell >= end // RATIO * RATIO:
            tl.store(left + cell % RATIO * ID + lane, key)
        if (cell + 1) % RATIO == 0:
            x, y = tl.zeros([ID], tl.float32), tl.zeros([ID], tl.float32)
            for j in tl.static_range(RATIO):
                at, old = row + (j - (RATIO - 1)), cell + (j - (RATIO - 1))
                inside = at >= begin  # rows of this window may not have reached the ring yet
                source = ik + at * ID if inside else ring + old % RING * ID
                x += tl.load(source + lane)
                y += tl.load(source + mate)
            x = _normed(x / RATIO, y / RATIO, weight, other, c, s, eps, ID)
            tl.store(blocks + (here // RATIO) * ID + lane, x)


@triton.jit
def _placed(slots, seen, pages, page_count):
    """A program's row: itself, its cell, the slot of its conversation, and where the cell lies in all pages."""
    row = tl.program_id(0)
    cell = tl.load(seen + row) - 1
    slot = tl.load(slots + row).to(tl.int64)
    page = tl.load(pages + slot * page_count + cell // PAGE).to(tl.int64)
    return row, cell, slot, page * PAGE + cell % PAGE


@triton.jit
def prepare(
    qg, k, v, cos, sin, positions, q_norm, k_norm, eps, slots, seen, pages, page_count, q_out, keys, values,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, HALF: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Norms and rotation of a window's heads; new cells into their pages. Grid: (T, NH + 2 NKV).

    Args:
        qg: float32 [T, NH, 2, HD], per head query then gate.
        k, v: float32 [T, NKV, HD].
        cos, sin: float32 [positions, HALF], of every position.
        positions: int32 [T], of the rows.
        q_norm, k_norm: float32 [HD].
        eps: of the norms.
        slots, seen: int32 [T], of each row: place of its conversation, and its cells with the row's own.
        pages: int32 [all slots, page_count].
        q_out: float32 [T, NH, HD], out.
        keys, values: [all pages, PAGE, NKV, HD], bfloat16 or float32; or uint8 [all pages, PAGE, NKV, HD/32, 36].
    """
    release(PDL)
    row, _, _, here = _placed(slots, seen, pages, page_count)
    position = tl.load(positions + row)
    _head(
        qg, k, v, cos, sin, position, q_norm, k_norm, eps, row, tl.program_id(1), here, q_out, keys, values,
        NH, NKV, HD, HALF, PDL,
    )  # fmt: skip


@triton.jit
def index(
    iq, ik, cos, sin, positions, starts, iq_norm, ik_norm, eps, slots, seen, begins, pages, page_count,
    iq_out, raw, blocks, left, counts,
    IH: tl.constexpr, ID: tl.constexpr, HALF: tl.constexpr, RATIO: tl.constexpr, FIRST: tl.constexpr,
    WINDOW: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The same for the indexer, which needs nothing of the heads. Grid: (T, FIRST + IH + 1).

    Args:
        iq: float32 [T, IH, ID].
        ik: float32 [T, ID].
        cos, sin, positions, eps, slots, seen, pages: as for `prepare`.
        starts: int32 [T], position of the first token of the block a row is in.
        iq_norm, ik_norm: float32 [ID].
        begins: int32 [T], the first row of each row's conversation.
        iq_out: float32 [T, IH, ID], out.
        raw: float32 [all slots, RING, ID]; blocks: float32 [all pages, PAGE/RATIO, ID].
        left: float32 [RATIO-1, ID], out: keys of the block that the rows leave open, as far as they are theirs; not
            looked at by a window.
        counts: int32, its first is T; likewise.
        FIRST: programs of a row that do something else.
        WINDOW: keys go to ``raw`` at once. More rows than it has room for leave it alone: there is one conversation,
            and its commit takes what is ``left``.
    """
    release(PDL)
    row, cell, slot, here = _placed(slots, seen, pages, page_count)
    end = 0 if WINDOW else tl.load(seen + tl.load(counts) - 1)
    _indexer(
        iq, ik, cos, sin, tl.load(positions + row), tl.load(starts + row), iq_norm, ik_norm, eps, row,
        tl.load(begins + row), tl.program_id(1) - FIRST, cell, end, here, iq_out, raw + slot * RING * ID, blocks, left,
        IH, ID, HALF, RATIO, WINDOW, PDL,
    )  # fmt: skip


@triton.jit
def _fetch(blocks, table, lot, most, per_page: tl.constexpr, ID: tl.constexpr, BLOCK: tl.constexpr):
    """Bring a lot's keys near, one number of each 128 bytes; what is read is not looked at, and may yet be written."""
    b, line = lot + tl.arange(0, BLOCK), tl.arange(0, ID // 32) * 32
    page = tl.load(table + b // per_page, mask=b < most, other=0).to(tl.int64)
    at = ((page * per_page + b % per_page) * ID)[:, None] + line[None, :]
    tl.load(blocks + at, mask=(b < most)[:, None], volatile=True)  # past the cache that would not see a later write


@triton.jit
def score(
    iq, blocks, homes, seen, first, pages, page_count, out, peaks, out_count,
    IH: tl.constexpr, ID: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr, BLOCK: tl.constexpr,
    LANES: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Scores of the complete blocks of each row; blocks are read once for ROWS rows of a conversation.

    Nothing is scored where the budget holds everything. The products have one shape whatever the number of rows, so
    a row's bytes do not depend on how many there are.

    Grid: (conversations, programs, most rows of a conversation / ROWS); each program takes every programs-th lot of
    BLOCK.

    Args:
        iq: float32 [T, IH, ID].
        blocks: float32 [all pages, PAGE/RATIO, ID].
        homes: int32 [conversations], the place of each.
        seen: int32 [T], as for `prepare`.
        first: int32 [conversations + 1], each conversation's first row, and the number of rows.
        out: float32 [T, out_count], out.
        peaks: float32 [T, out_count / TILE], out: the largest of every TILE scores, where there are more than
            BUDGET TILE.
        BUDGET: blocks a row selects.
        BLOCK: blocks a program scores at a time; a multiple of TILE.
        LANES: of a block's key, at a time.
        TILE: as for `choose`.
        ROWS: of a conversation, at a time; power of two.
        PRECISION: of the products: float32's, or three products of tf32 where there are tensor cores for it.
    """
    release(PDL)
    conversation = tl.program_id(0)
    begin = tl.load(first + conversation)
    end = tl.load(first + conversation + 1)
    row = begin + tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    complete = tl.load(seen + row, mask=row < end, other=0) // RATIO
    most = tl.max(complete, 0)
    lot_ = tl.program_id(1) * BLOCK
    if (most > BUDGET) & (lot_ < most):
        table = pages + tl.load(homes + conversation).to(tl.int64) * page_count
        per_page: tl.constexpr = PAGE // RATIO
        lane, column = tl.arange(0, LANES), tl.arange(0, ROWS * IH)
        mine = begin + tl.program_id(2) * ROWS + column // IH
        query_at = ((mine * IH + column % IH) * ID)[None, :] + lane[:, None]
        if PDL:
            _fetch(blocks, table, lot_, most, per_page, ID, BLOCK)
        wait(PDL)
        for lot in range(lot_, most, tl.num_programs(1) * BLOCK):
            b = lot + tl.arange(0, BLOCK)
            there = b < most
            page = tl.load(table + b // per_page, mask=there, other=0).to(tl.int64)
            at = ((page * per_page + b % per_page) * ID)[:, None] + lane[None, :]
            total = tl.zeros([BLOCK, ROWS * IH], tl.float32)
            for part in range(0, ID, LANES):
                key = tl.load(blocks + at + part, mask=there[:, None], other=0.0)
                query = tl.load(iq + query_at + part, mask=(mine < end)[None, :], other=0.0)
                total = tl.dot(key, query, total, input_precision=PRECISION)
            total = tl.sum(tl.reshape(tl.maximum(total, 0.0), (BLOCK, ROWS, IH)), 2)
            inside = (b[:, None] < complete[None, :]) & (complete > BUDGET)[None, :]
            tl.store(out + row[None, :] * out_count + b[:, None], total, mask=inside)
            if most > BUDGET * TILE:
                tile = lot // TILE + tl.arange(0, BLOCK // TILE)
                peak = tl.max(tl.reshape(tl.where(inside, total, 0.0), (BLOCK // TILE, TILE, ROWS)), 1)
                known = tile[:, None] * TILE < complete[None, :]
                tl.store(peaks + row[None, :] * (out_count // TILE) + tile[:, None], peak, mask=known)
    elif tl.program_id(1) == 0:
        # Whoever waits for this kernel waits for those before it, too; one program is enough for that, and the others
        # leave their registers to products.
        wait(PDL)


@triton.jit
def _narrowed(low, above, high, below, trial, reached, BUDGET: tl.constexpr):
    """The brackets of `_threshold` after it is known how many reach a trial."""
    enough = reached >= BUDGET
    low, above = tl.where(enough, tl.maximum(low, trial), low), tl.where(enough, tl.minimum(above, reached), above)
    high, below = tl.where(enough, high, tl.minimum(high, trial)), tl.where(enough, below, tl.maximum(below, reached))
    return low, above, high, below


@triton.jit
def _logarithm(x):
    """To the base of two, within 0.01: a guess needs no more."""
    bits = tl.full([], 0, tl.float32) + x
    bits = bits.to(tl.int32, bitcast=True)
    part = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True) - 1.0
    return (bits - 0x3F800000).to(tl.float32) * 2.0**-23 + part * (1.0 - part) * 0.344


@triton.jit
def _threshold(key, low, above, high, BUDGET: tl.constexpr):
    """A key that just BUDGET keys reach, or the one whose equals there is not room for.

    Returns it, how many reach it, and how many exceed it if those are more than BUDGET. Whichever way it is found, the
    keys to take are the same; so each step tries a guess by how fast counts fall, a little less, a little more, and the
    middle. What a step takes is a sum over all warps, and one sum holds four counts: of random scores 4.6 to 5.7 steps
    find it, where guessing and halving by turns took 10 to 17.

    Args:
        key: int32 [LINE, lines]; bits of non-negative floats, and -1 where there is nothing; fewer than 2^15.
        low, above: at least BUDGET keys reach the one, and no more than the other, which is more than BUDGET.
        high: no key reaches it.
    """
    below = tl.full([], 0, tl.int32)  # reach `high`, fewer than BUDGET
    fourth = low + 1  # zeros are the commonest equals
    finite: tl.constexpr = 0x7F7FFFFF
    while (above != BUDGET) & (high - low > 1):
        most = _logarithm(above.to(tl.float32))
        share = (most - _logarithm(BUDGET + 0.0)) / (most - _logarithm(tl.maximum(below.to(tl.float32), 0.5)))
        bottom = tl.minimum(low, finite).to(tl.float32, bitcast=True)
        wide = tl.minimum(high, finite).to(tl.float32, bitcast=True) - bottom
        guess = bottom + wide * share
        first = (guess - wide * 0.0625).to(tl.int32, bitcast=True)
        third = (guess + wide * 0.0625).to(tl.int32, bitcast=True)
        first = tl.minimum(tl.maximum(first, low + 1), high - 1)
        second = tl.minimum(tl.maximum(guess.to(tl.int32, bitcast=True), low + 1), high - 1)
        third = tl.minimum(tl.maximum(third, low + 1), high - 1)
        fourth = tl.minimum(tl.maximum(fourth, low + 1), high - 1)
        counts = (key >= first).to(tl.int64) + ((key >= second).to(tl.int64) << 16)
        counts += ((key >= third).to(tl.int64) << 32) + ((key >= fourth).to(tl.int64) << 48)
        counts = tl.sum(counts)
        reached = (counts & 0xFFFF).to(tl.int32)
        low, above, high, below = _narrowed(low, above, high, below, first, reached, BUDGET)
        reached = ((counts >> 16) & 0xFFFF).to(tl.int32)
        low, above, high, below = _narrowed(low, above, high, below, second, reached, BUDGET)
        reached = ((counts >> 32) & 0xFFFF).to(tl.int32)
        low, above, high, below = _narrowed(low, above, high, below, third, reached, BUDGET)
        reached = (counts >> 48).to(tl.int32)
        low, above, high, below = _narrowed(low, above, high, below, fourth, reached, BUDGET)
        fourth = low + (high - low) // 2
    return low, above, below


@triton.jit
def _select(key, low, count, high, BUDGET: tl.constexpr):
    """Which of more than BUDGET keys to take, each one's place among them, and what they reach; of equals the first.

    Args:
        key, low, high: as for `_threshold`, and `count` as `above`.
    """
    reached, above, below = _threshold(key, low, count, high, BUDGET)
    room = tl.where(above == BUDGET, BUDGET, BUDGET - below)  # for those that are equal
    equal = key == reached
    both = (key > reached).to(tl.int32) + (equal.to(tl.int32) << 16)
    lines = tl.sum(both, 0)
    # In two steps, because a running sum over all keys goes through memory once for each warp and part.
    ranks = (tl.cumsum(lines, 0) - lines)[None, :] + tl.cumsum(both, 0)
    same = ranks >> 16
    take = (key > reached) | (equal & (same <= room))
    return take, (ranks & 0xFFFF) + tl.minimum(same, room) - 1, reached


@triton.jit
def _keys(scores, b, complete):
    """Scores of blocks as integers in the same order, -1 for blocks that are not there; NaN is zero."""
    inside = b < complete
    bits = tl.load(scores + b, mask=inside, other=0.0).to(tl.int32, bitcast=True)
    return tl.where(inside, tl.where(bits > 0x7F800000, 0, tl.maximum(bits, 0)), -1)


@triton.jit
def _numbers(LINES: tl.constexpr, LINE: tl.constexpr):
    """0, 1, 2, ... in lines, along the first axis: so threads lie where the compiler knows nothing of the places."""
    return tl.arange(0, LINE)[:, None] + tl.arange(0, LINES)[None, :] * LINE


@triton.jit
def _choose_of(scores, complete, out, BUDGET: tl.constexpr, SIZE: tl.constexpr, LINE: tl.constexpr):
    """Choose among at most SIZE scores, all of them at once in registers."""
    b = _numbers(SIZE // LINE, LINE)
    key = _keys(scores, b, complete)
    take, place, _ = _select(key, tl.full([], 0, tl.int32), complete, tl.max(key) + 1, BUDGET)
    tl.store(out + place, b, mask=take)


@triton.jit
def choose(
    scores, peaks, score_count, seen, chosen,
    RATIO: tl.constexpr, BUDGET: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The BUDGET blocks with the largest scores, of equal ones the lower, in rising order. Grid: (T,).

    Nothing is done where the budget holds everything.

    A score is never negative, so its bits order like an integer; they stay in registers while the smallest chosen one
    is searched (`_threshold`). More than BUDGET TILE are met in tiles, and more tiles than that in tiles of tiles. A
    block of a tile that is not among the BUDGET ones with the largest peaks is not chosen: each of those has a block
    before it. So the same is done with peaks, then with the blocks of the tiles that were taken, which costs the same
    whatever the length: by the same instructions, for those come from device memory, and that takes longer than what
    they do.

    Args:
        scores: float32 [T, score_count]; peaks: float32 [T, score_count / TILE]; as `score` leaves them.
        seen: as for `prepare`.
        chosen: int32 [T, BUDGET], out.
        TILE: power of two; BUDGET TILE is below 2^15, and BUDGET TILE^3 at least the most blocks there can be.
    """
    SIZE: tl.constexpr = BUDGET * TILE
    LINE: tl.constexpr = min(SIZE // 8, 32)  # scores side by side, those of a warp
    release(PDL)
    row = tl.program_id(0)
    complete = tl.load(seen + row) // RATIO
    wait(PDL)
    out = chosen + row * BUDGET
    scores += row * score_count
    peaks += row * (score_count // TILE)
    if complete > BUDGET:
        if complete <= SIZE // 2:
            _choose_of(scores, complete, out, BUDGET, SIZE // 2, LINE)
        else:
            tiles = (complete + TILE - 1) // TILE
            top = (complete > SIZE).to(tl.int32) + (tiles > SIZE).to(tl.int32)
            e = _numbers(SIZE // LINE, LINE)
            low, high = tl.full([], 0, tl.int32), tl.full([], 0, tl.int32)
            for step in range(top + 1):
                level = top - step
                source, limit = scores, complete
                if level > 0:
                    source, limit = peaks, tiles
                span = tl.where(level > 1, TILE, 1)
                b, count = e, (limit + span - 1) // span
                if step > 0:
                    tl.debug_barrier()
                    b = tl.load(out + e // TILE) * TILE + e % TILE
                    groups = (limit + TILE - 1) // TILE
                    short = tl.load(out + BUDGET - 1) == groups - 1  # the last one may lack some
                    count = SIZE - tl.where(short, groups * TILE - limit, 0)
                key = tl.full([LINE, SIZE // LINE], -1, tl.int32)
                for j in range(span):
                    key = tl.maximum(key, _keys(source, b * span + j, limit))
                if step == 0:
                    high = tl.max(key) + 1
                take, place, low = _select(key, low, count, high, BUDGET)  # the blocks reach what their tiles do
                tl.debug_barrier()  # everyone has read what is overwritten
                tl.store(out + place, b, mask=take)


@triton.jit
def _product(x, y, SCALE: tl.constexpr, SPLIT: tl.constexpr):
    """Matrix product of float32 with bfloat16 (SPLIT) or float32, times a number.

    The tensor cores multiply bfloat16 exactly, and add in float32. Split into two bfloat16 numbers, x keeps 16 of its
    24 bits; that costs two products instead of one, and stays within 2^-16 of the float32 product.
    """
    if SPLIT:
        high = x.to(tl.bfloat16)
        rest = (x - high.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(high, y) * SCALE + tl.dot(rest, y) * SCALE  # so that neither waits for the other
    else:
        total = tl.dot(x, y.to(tl.float32), input_precision="ieee") * SCALE
    return total


@triton.jit
def _eighths(codes, SPLIT: tl.constexpr):
    """Codes as `_product` takes them: bfloat16 holds every one."""
    return codes.to(tl.bfloat16) if SPLIT else codes.to(tl.float32)


@triton.jit
def attend(
    q, keys, values, chosen, slots, seen, pages, page_count, part, peak, weight,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr,
    HEADS: tl.constexpr, CELLS: tl.constexpr, PARTS: tl.constexpr, LANES: tl.constexpr, SPLIT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Softmax attention over one part of a row's selected cells. Grid: (T, NKV, PARTS).

    Heads are met LANES at a time, so that there are few instructions: they come from device memory in every layer,
    because the weights of a token pass through the caches in between, and that takes longer than what they do.

    In eight bits they are met a block at a time, for a block of a cell has one scale: products are with codes, which
    are exact, and the scale is taken into the sum of a block of the logits, and into the weights before the values.

    Args:
        q: float32 [T, NH, HD].
        keys, values: as for `prepare`.
        chosen: int32 [T, BUDGET]; not looked at where the budget holds everything.
        slots, seen, pages: as for `prepare`.
        part: float32 [T, NH, PARTS, HD], out: weighted values, not yet divided.
        peak, weight: float32 [T, NH, PARTS], out: largest logit, and sum of weights relative to it.
        HEADS: power of two, at least NH / NKV; at least 16.
        CELLS: of a part.
        LANES: of a head; at least 16. Not looked at where a block is 32.
        SPLIT: multiply on tensor cores; needs bfloat16 or eight bits and sm_80. Not for the interpreter, whose
            bfloat16 is wrong.
    """
    EIGHT: tl.constexpr = keys.dtype.element_ty == tl.uint8
    WIDTH: tl.constexpr = HD // 32 * CELL_BLOCK if EIGHT else HD
    STEP: tl.constexpr = 32 if EIGHT else LANES
    release(PDL)
    row, kv, piece = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    have = tl.load(seen + row)
    table = pages + tl.load(slots + row).to(tl.int64) * page_count
    complete = have // RATIO
    selected = tl.minimum(complete, BUDGET) * RATIO
    total = selected + have % RATIO
    if piece * CELLS < total:
        group: tl.constexpr = NH // NKV
        lane, head = tl.arange(0, STEP), tl.arange(0, HEADS)
        j = piece * CELLS + tl.arange(0, CELLS)
        newest = j + (have - total)  # behind what was selected come the newest cells
        heads = row * NH + kv * group + head
        wait(PDL)
        inside, known = j < total, head < group
        block = tl.load(chosen + row * BUDGET + j // RATIO, mask=inside & (complete > BUDGET) & (j < selected), other=0)
        cell = tl.where((complete > BUDGET) & (j < selected), block * RATIO + j % RATIO, newest)
        page = tl.load(table + cell // PAGE, mask=inside, other=0).to(tl.int64)
        at = ((page * PAGE + cell % PAGE) * NKV + kv) * WIDTH
        logits = tl.zeros([HEADS, CELLS], tl.float32)
        for first in range(0, HD, STEP):
            query = tl.load(q + heads[:, None] * HD + first + lane[None, :], mask=known[:, None], other=0.0)
            if EIGHT:
                codes, scale = load_block(keys, at, first // 32, inside)
                total_ = _product(query, tl.trans(_eighths(codes, SPLIT)), HD**-0.5, SPLIT)
                logits += total_ * scale[None, :]
            else:
                key = tl.load(keys + at[:, None] + first + lane[None, :], mask=inside[:, None], other=0.0)
                logits += _product(query, tl.trans(key), HD**-0.5, SPLIT)
        logits = tl.where((j < total)[None, :], logits, float("-inf"))
        top = tl.max(logits, 1)
        weights = tl.exp(logits - top[:, None])
        to = heads * PARTS + piece
        tl.store(peak + to, top, mask=known)
        tl.store(weight + to, tl.sum(weights, 1), mask=known)
        for first in range(0, HD, STEP):
            if EIGHT:
                codes, scale = load_block(values, at, first // 32, inside)
                out = _product(weights * scale[None, :], _eighths(codes, SPLIT), 1.0, SPLIT)
            else:
                value = tl.load(values + at[:, None] + first + lane[None, :], mask=inside[:, None], other=0.0)
                out = _product(weights, value, 1.0, SPLIT)
            tl.store(part + to[:, None] * HD + first + lane[None, :], out, mask=known[:, None])


@triton.jit
def _merged(part, peak, weight, at, pieces, lane, HD: tl.constexpr, ROOM: tl.constexpr):
    """Some lanes of a head's parts, of which there are at most ROOM, put together."""
    piece = tl.arange(0, ROOM)
    there = piece < pieces
    values = tl.load(part + (at + piece)[:, None] * HD + lane[None, :], mask=there[:, None], other=0.0)
    peaks = tl.load(peak + at + piece, mask=there, other=-1e30)
    weights = tl.load(weight + at + piece, mask=there, other=0.0)
    scale = tl.where(there, tl.exp(peaks - tl.max(peaks, 0)), 0.0)
    return tl.sum(scale[:, None] * values, 0) / tl.sum(scale * weights, 0)


@triton.jit
def merge(
    part, peak, weight, qg, seen, gated, q, s, sums,
    NH: tl.constexpr, HD: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr, CELLS: tl.constexpr,
    PARTS: tl.constexpr, FEW: tl.constexpr, ROOM: tl.constexpr, LANES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Merge a row's parts, gate, and quantise for the output projection. Grid: (T, NH, HD / LANES).

    Args:
        part, peak, weight: as `attend` leaves them.
        qg: float32 [T, NH, 2, HD].
        seen: as for `prepare`.
        gated: float32 [T, NH*HD], out; q, s, sums: the same quantised, out.
        FEW, ROOM: powers of two; as many parts are read as there are, if not more than FEW, else ROOM, at least PARTS.
        LANES: of a head, a multiple of 32.
    """
    release(PDL)
    row, head = tl.program_id(0), tl.program_id(1)
    have = tl.load(seen + row)
    pieces = (tl.minimum(have // RATIO, BUDGET) * RATIO + have % RATIO + CELLS - 1) // CELLS
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)
    at = (row * NH + head) * PARTS
    block = (head * HD + tl.program_id(2) * LANES) // 32
    wait(PDL)
    gate = sigmoid(tl.load(qg + (row * NH + head) * 2 * HD + HD + lane))
    if pieces <= FEW:
        out = _merged(part, peak, weight, at, pieces, lane, HD, FEW)
    else:
        out = _merged(part, peak, weight, at, pieces, lane, HD, ROOM)
    out = out * gate
    tl.store(gated + (row * NH + head) * HD + lane, out)
    store_quantised(q, s, sums, row, out, block, block + LANES // 32, NH * HD // 32, LANES // 32)
