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
from strata.ops.qsa.choose import BINS, bin_of
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
    left, IH: tl.constexpr, ID: tl.constexpr, HALF: tl.constexpr, RATIO: tl.constexpr, JOINED: tl.constexpr,
    WINDOW: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A head of the indexer's queries, or its key, with the block that the row completes, if it does."""
    lane, mate = tl.arange(0, ID), _partner(ID, HALF)
    q_row: tl.constexpr = (IH + 1) * ID if JOINED else IH * ID
    k_row: tl.constexpr = (IH + 1) * ID if JOINED else ID
    norm = iq_norm if h < IH else ik_norm
    weight, other = tl.load(norm + lane), tl.load(norm + mate)
    c, s = _angles(cos, sin, position if h < IH else start, ID, HALF)
    wait(PDL)
    if h < IH:
        source = iq + row * q_row + h * ID
        x = _normed(tl.load(source + lane), tl.load(source + mate), weight, other, c, s, eps, ID)
        tl.store(iq_out + (row * IH + h) * ID + lane, x)
    else:
        key = tl.load(ik + row * k_row + lane)
        if WINDOW:
            tl.store(ring + cell % RING * ID + lane, key)
        elif cell >= end // RATIO * RATIO:
            tl.store(left + cell % RATIO * ID + lane, key)
        if (cell + 1) % RATIO == 0:
            x, y = tl.zeros([ID], tl.float32), tl.zeros([ID], tl.float32)
            for j in tl.static_range(RATIO):
                at, old = row + (j - (RATIO - 1)), cell + (j - (RATIO - 1))
                inside = at >= begin  # rows of this window may not have reached the ring yet
                source = ik + at * k_row if inside else ring + old % RING * ID
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
    iq_out, raw, blocks, left, counts, bins,
    IH: tl.constexpr, ID: tl.constexpr, HALF: tl.constexpr, RATIO: tl.constexpr, FIRST: tl.constexpr,
    JOINED: tl.constexpr, WINDOW: tl.constexpr, COUNTED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The same for the indexer, which needs nothing of the heads. Grid: (T, FIRST + IH + 1).

    Args:
        iq: float32 [T, IH, ID].
        ik: float32 [T, ID]; with JOINED each of its rows follows that of iq.
        cos, sin, positions, eps, slots, seen, pages: as for `prepare`.
        starts: int32 [T], position of the first token of the block a row is in.
        iq_norm, ik_norm: float32 [ID].
        begins: int32 [T], the first row of each row's conversation.
        iq_out: float32 [T, IH, ID], out.
        raw: float32 [all slots, RING, ID]; blocks: float32 [all pages, PAGE/RATIO, ID].
        left: float32 [RATIO-1, ID], out: keys of the block that the rows leave open, as far as they are theirs; not
            looked at by a window.
        counts: int32, its first is T; likewise.
        bins: int32 [T, BINS], out, only with COUNTED: zeros, for `score` to count in.
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
        IH, ID, HALF, RATIO, JOINED, WINDOW, PDL,
    )  # fmt: skip
    if COUNTED:
        EACH: tl.constexpr = triton.next_power_of_2((BINS + IH) // (IH + 1))
        mine = (tl.program_id(1) - FIRST) * EACH + tl.arange(0, EACH)
        tl.store(bins + row * BINS + mine, 0, mask=mine < BINS)


@triton.jit
def _lot(blocks, table, lot, end, ID: tl.constexpr, RATIO: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr):
    """Keys of a lot's blocks before `end`: [BLOCK, LANES] for each LANES numbers."""
    per_page: tl.constexpr = PAGE // RATIO
    b = lot + tl.arange(0, BLOCK)
    wanted = b < end
    page = tl.load(table + b // per_page, mask=wanted, other=0).to(tl.int64)
    at = ((page * per_page + b % per_page) * ID)[:, None] + tl.arange(0, LANES)[None, :]
    keys = ()
    for part in tl.static_range(ID // LANES):
        keys = keys + (tl.load(blocks + at + part * LANES, mask=wanted[:, None], other=0.0),)
    return keys


@triton.jit
def _scored(iq, keys, row, IH: tl.constexpr, ID: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr):
    """A row's scores of a lot: [BLOCK]."""
    lane, total = tl.arange(0, LANES), tl.zeros([BLOCK], tl.float32)
    for h in tl.static_range(IH):
        products = tl.zeros([BLOCK, LANES], tl.float32)
        for part in tl.static_range(ID // LANES):
            products += keys[part] * tl.load(iq + (row * IH + h) * ID + part * LANES + lane)[None, :]
        total += tl.maximum(tl.sum(products, 1), 0.0)
    return total


@triton.jit
def score(
    iq, blocks, homes, seen, first, pages, page_count, out, peaks, bins, out_count,
    IH: tl.constexpr, ID: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr, BLOCK: tl.constexpr,
    LANES: tl.constexpr, TILE: tl.constexpr, COUNTED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Scores of the complete blocks of each row. Nothing is scored where the budget holds everything.

    A program has the keys of its first lot before it waits for the queries: they were left by earlier windows, but for
    those of blocks that this window completes, which come behind the wait. Products and sums are float32's, each row's
    by itself in an order that depends on IH and ID alone.

    4.2 MB of keys at 32K tokens, a microsecond at 4.2 TB/s, and for further rows of a conversation from the second
    cache; 512 products a block, which is less. What takes longer are latencies: of the queries, of sums over eight
    threads, of what is left for the choice. So each row has programs of its own: those that took eight rows, one behind
    the other, with the keys in their registers, were 5 us slower for four.

    Grid: (conversations, programs, most rows of a conversation); each program takes every programs-th lot of BLOCK.

    Args:
        iq: float32 [T, IH, ID].
        blocks: float32 [all pages, PAGE/RATIO, ID].
        homes: int32 [conversations], the place of each.
        seen: int32 [T], as for `prepare`.
        first: int32 [conversations + 1], each conversation's first row, and the number of rows.
        out: float32 [T, out_count], out.
        peaks: float32 [T, out_count / TILE], out: the largest of every TILE scores, where there are more than
            BUDGET TILE.
        bins: int32 [T, BINS], only with COUNTED: how many scores lie in each, where there are as many.
        BUDGET: blocks a row selects.
        BLOCK: blocks a program scores at a time; a multiple of TILE.
        LANES: of a block's key, at a time: four for each thread of those that share a block.
        TILE: as for `choose`.
    """
    release(PDL)
    conversation = tl.program_id(0)
    begin, end = tl.load(first + conversation), tl.load(first + conversation + 1)
    row = begin + tl.program_id(2)
    complete = tl.load(seen + row, mask=row < end, other=0) // RATIO
    lot_ = tl.program_id(1) * BLOCK
    if (complete > BUDGET) & (lot_ < complete):
        table = pages + tl.load(homes + conversation).to(tl.int64) * page_count
        known = (tl.load(seen + begin) - 1) // RATIO  # blocks before the window
        keys = _lot(blocks, table, lot_, known, ID, RATIO, BLOCK, LANES)
        wait(PDL)
        for lot in range(lot_, complete, tl.num_programs(1) * BLOCK):
            if (lot > lot_) | (lot + BLOCK > known):
                keys = _lot(blocks, table, lot, complete, ID, RATIO, BLOCK, LANES)
            b = lot + tl.arange(0, BLOCK)
            total = _scored(iq, keys, row, IH, ID, BLOCK, LANES)
            inside = b < complete
            tl.store(out + row * out_count + b, total, mask=inside)
            if complete > BUDGET * TILE:
                if COUNTED:
                    where = bins + row * BINS + bin_of(total.to(tl.int32, bitcast=True))
                    tl.atomic_add(where, 1, mask=inside, sem="relaxed")
                tile = lot // TILE + tl.arange(0, BLOCK // TILE)
                peak = tl.max(tl.reshape(tl.where(inside, total, 0.0), (BLOCK // TILE, TILE)), 1)
                tl.store(peaks + row * (out_count // TILE) + tile, peak, mask=tile * TILE < complete)
    elif tl.program_id(1) == 0:
        # Whoever waits for this kernel waits for those before it, too; one program is enough for that, and the others
        # leave their registers to products.
        wait(PDL)


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
def _near(cells, at, inside, WIDTH: tl.constexpr):
    """Have cells come to the second cache, one load for each 128 bytes of a head; nobody looks at what is read."""
    EACH: tl.constexpr = 128 * 8 // cells.dtype.element_ty.primitive_bitwidth
    line = tl.arange(0, triton.next_power_of_2(triton.cdiv(WIDTH, EACH))) * EACH
    there = inside[:, None] & (line < WIDTH)[None, :]
    tl.load(cells + at[:, None] + line[None, :], mask=there, volatile=True)


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
        if PDL:
            _near(values, at, inside, WIDTH)
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
