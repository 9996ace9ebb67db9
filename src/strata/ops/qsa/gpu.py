"""Sparse attention of a window on a GPU: prepare, score, choose, attend, merge.

Keys, values and raw indexer keys live in pages of `PAGE` cells; cell c of a conversation is row ``c % PAGE`` of page
``pages[slot, c // PAGE]``. Pooled block keys live in the same pages, ``PAGE / RATIO`` a page.

A row attends at most 2,051 cells whatever the context, so at 32K tokens a layer reads 4.2 MB of keys and values
(bfloat16) and 4.2 MB of block keys, 2 us at 4.2 TB/s. Sums run in parts of fixed size over the list of selected cells,
and parts are merged in order: a row's bytes depend on its own list alone.
"""

import triton
import triton.language as tl

from strata.ops.device import sigmoid, store_quantised

PAGE = tl.constexpr(64)


@triton.jit
def _rotated(x, other, lane, cos, sin, HALF: tl.constexpr):
    """Rotary embedding of the first 2 HALF lanes; `other` holds each lane's partner."""
    pair = lane % HALF
    turned = lane < 2 * HALF
    c = tl.load(cos + pair, mask=turned, other=1.0)
    s = tl.load(sin + pair, mask=turned, other=0.0)
    return tl.where(turned, x * c + tl.where(lane < HALF, -other, other) * s, x)


@triton.jit
def _head(source, norm, cos, sin, eps, W: tl.constexpr, HALF: tl.constexpr):
    """Load a head, normalise and rotate it."""
    lane = tl.arange(0, W)
    partner = tl.where(lane < 2 * HALF, (lane + HALF) % (2 * HALF), lane)
    x = tl.load(source + lane)
    scale = 1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / W + eps)
    y = x * scale * tl.load(norm + lane)
    other = tl.load(source + partner) * scale * tl.load(norm + partner)
    return _rotated(y, other, lane, cos, sin, HALF)


@triton.jit
def prepare(
    qg, k, v, iq, ik, cos, sin, block_cos, block_sin, q_norm, k_norm, iq_norm, ik_norm, eps,
    slots, first, owner, lengths, pages, page_count,
    q_out, iq_out, keys, values, raw, blocks,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, IH: tl.constexpr, ID: tl.constexpr,
    HALF: tl.constexpr, RATIO: tl.constexpr,
):  # fmt: skip
    """Norms and rotation of a window's heads; new cells into their pages. Grid: (T, NH + 2 NKV + IH + 1).

    Args:
        qg: float32 [T, NH, 2, HD], per head query then gate.
        k, v: float32 [T, NKV, HD].
        iq: float32 [T, IH, ID].
        ik: float32 [T, ID].
        cos, sin: float32 [T, HALF] of the rows' positions.
        block_cos, block_sin: float32 [T, HALF], of the first token of the block the row completes, if it does.
        q_norm, k_norm: float32 [HD]; iq_norm, ik_norm: float32 [ID].
        eps: of the norms.
        slots, lengths: int32 [conversations], place and committed cells of each.
        first: int32 [conversations + 1]; owner: int32 [T].
        pages: int32 [all slots, page_count].
        q_out: float32 [T, NH, HD], out; iq_out: float32 [T, IH, ID], out.
        keys, values: [all pages, PAGE, NKV, HD], bfloat16 or float32.
        raw: float32 [all pages, PAGE, ID]; blocks: float32 [all pages, PAGE/RATIO, ID].
    """
    row, head = tl.program_id(0), tl.program_id(1)
    conversation = tl.load(owner + row)
    begin = tl.load(first + conversation)
    committed = tl.load(lengths + conversation)
    cell = committed + row - begin
    table = pages + tl.load(slots + conversation).to(tl.int64) * page_count
    page = tl.load(table + cell // PAGE).to(tl.int64)
    here = page * PAGE + cell % PAGE
    cos_row, sin_row = cos + row * HALF, sin + row * HALF
    lane = tl.arange(0, HD)
    if head < NH:
        source = qg + (row * NH + head) * 2 * HD
        tl.store(q_out + (row * NH + head) * HD + lane, _head(source, q_norm, cos_row, sin_row, eps, HD, HALF))
    elif head < NH + NKV:
        h = head - NH
        x = _head(k + (row * NKV + h) * HD, k_norm, cos_row, sin_row, eps, HD, HALF)
        tl.store(keys + (here * NKV + h) * HD + lane, x.to(keys.dtype.element_ty))
    elif head < NH + 2 * NKV:
        h = head - NH - NKV
        x = tl.load(v + (row * NKV + h) * HD + lane)
        tl.store(values + (here * NKV + h) * HD + lane, x.to(values.dtype.element_ty))
    elif head < NH + 2 * NKV + IH:
        h = head - NH - 2 * NKV
        at = (row * IH + h) * ID
        tl.store(iq_out + at + tl.arange(0, ID), _head(iq + at, iq_norm, cos_row, sin_row, eps, ID, HALF))
    else:
        part = tl.arange(0, ID)
        tl.store(raw + here * ID + part, tl.load(ik + row * ID + part))
        if (cell + 1) % RATIO == 0:
            partner = tl.where(part < 2 * HALF, (part + HALF) % (2 * HALF), part)
            mean = tl.zeros([ID], tl.float32)
            mate = tl.zeros([ID], tl.float32)
            for j in tl.static_range(RATIO):
                at = cell + (j - (RATIO - 1))
                inside = at >= committed  # rows of this window may not have reached their page yet
                old = (tl.load(table + at // PAGE).to(tl.int64) * PAGE + at % PAGE) * ID
                new = (begin + at - committed) * ID
                mean += tl.where(
                    inside,
                    tl.load(ik + new + part, mask=inside & (part >= 0), other=0.0),
                    tl.load(raw + old + part, mask=(at < committed) & (part >= 0), other=0.0),
                )
                mate += tl.where(
                    inside,
                    tl.load(ik + new + partner, mask=inside & (part >= 0), other=0.0),
                    tl.load(raw + old + partner, mask=(at < committed) & (part >= 0), other=0.0),
                )
            mean, mate = mean / RATIO, mate / RATIO
            scale = 1.0 / tl.sqrt_rn(tl.sum(mean * mean, 0) / ID + eps)
            x = mean * scale * tl.load(ik_norm + part)
            other = mate * scale * tl.load(ik_norm + partner)
            x = _rotated(x, other, part, block_cos + row * HALF, block_sin + row * HALF, HALF)
            tl.store(blocks + (here // RATIO) * ID + part, x)


@triton.jit
def score(
    iq, blocks, slots, first, owner, lengths, pages, page_count, out, out_count,
    IH: tl.constexpr, ID: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Scores of the complete blocks of each row. Grid: (T, most blocks / BLOCK).

    Nothing is scored where the budget holds everything.

    Args:
        iq: float32 [T, IH, ID].
        blocks: float32 [all pages, PAGE/RATIO, ID].
        slots, first, owner, lengths, pages: as for `prepare`.
        out: float32 [T, out_count], out.
        BUDGET: blocks a row selects.
        BLOCK: blocks a program scores.
    """
    row = tl.program_id(0)
    conversation = tl.load(owner + row)
    complete = (tl.load(lengths + conversation) + row - tl.load(first + conversation) + 1) // RATIO
    begin = tl.program_id(1) * BLOCK
    if (complete > BUDGET) & (begin < complete):
        b = begin + tl.arange(0, BLOCK)
        inside = b < complete
        per_page: tl.constexpr = PAGE // RATIO
        table = pages + tl.load(slots + conversation).to(tl.int64) * page_count
        page = tl.load(table + b // per_page, mask=inside, other=0).to(tl.int64)
        part = tl.arange(0, ID)
        at = (page * per_page + b % per_page) * ID
        key = tl.load(blocks + at[:, None] + part[None, :], mask=inside[:, None], other=0.0)
        total = tl.zeros([BLOCK], tl.float32)
        for h in tl.static_range(IH):
            query = tl.load(iq + (row * IH + h) * ID + part)
            total += tl.maximum(tl.sum(key * query[None, :], 1), 0.0)
        tl.store(out + row * out_count + b, total, mask=inside)


@triton.jit
def choose(
    scores, score_count, first, owner, lengths, chosen, counts,
    RATIO: tl.constexpr, BUDGET: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The BUDGET blocks with the largest scores, of equal ones the lower, in rising order. Grid: (T,).

    A score is never negative, so its bits order like an integer. The row's scores stay in registers while the smallest
    chosen one is found bit by bit, until exactly BUDGET scores reach what is found; a running sum writes the list.

    Args:
        scores: float32 [T, score_count].
        first, owner, lengths: as for `prepare`.
        chosen: int32 [T, BUDGET], out.
        counts: int32 [T], out: how many of `chosen` count.
        BLOCK: power of two, at least the most blocks a row can have.
    """
    row = tl.program_id(0)
    conversation = tl.load(owner + row)
    complete = (tl.load(lengths + conversation) + row - tl.load(first + conversation) + 1) // RATIO
    out = chosen + row * BUDGET
    if complete <= BUDGET:
        every = tl.arange(0, BUDGET)
        tl.store(out + every, every, mask=every < complete)
        tl.store(counts + row, complete)
    else:
        b = tl.arange(0, BLOCK)
        score = tl.load(scores + row * score_count + b, mask=b < complete, other=0.0)
        key = tl.where(b < complete, score.to(tl.int32, bitcast=True), -1)
        reached = tl.full([], 0, tl.int32)
        above = complete  # how many reach what is found so far
        bit = tl.full([], 30, tl.int32)
        while (bit >= 0) & (above != BUDGET):
            trial = reached | (1 << bit)
            count = tl.sum((key >= trial).to(tl.int32), 0)
            enough = count >= BUDGET
            reached = tl.where(enough, trial, reached)
            above = tl.where(enough, count, above)
            bit -= 1
        equal = (key == reached).to(tl.int32)
        left = BUDGET - tl.sum((key > reached).to(tl.int32), 0)  # how many of the equal ones there is room for
        take = (key > reached) | ((equal != 0) & ((tl.cumsum(equal, 0) <= left) | (above == BUDGET)))
        place = tl.cumsum(take.to(tl.int32), 0) - 1
        tl.store(out + place, b, mask=take)
        tl.store(counts + row, BUDGET)


@triton.jit
def _product(x, y, SPLIT: tl.constexpr):
    """Matrix product of float32 with bfloat16 (SPLIT) or float32.

    The tensor cores multiply bfloat16 exactly, and add in float32. Split into two bfloat16 numbers, x keeps 16 of its
    24 bits; that costs two products instead of one, and stays within 2^-16 of the float32 product.
    """
    if SPLIT:
        high = x.to(tl.bfloat16)
        rest = (x - high.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(rest, y, tl.dot(high, y))
    else:
        total = tl.dot(x, y.to(tl.float32), input_precision="ieee")
    return total


@triton.jit
def attend(
    q, keys, values, chosen, counts, slots, first, owner, lengths, pages, page_count, part, peak, weight,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr,
    HEADS: tl.constexpr, CELLS: tl.constexpr, PARTS: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Softmax attention over one part of a row's selected cells. Grid: (T, NKV, PARTS).

    Args:
        q: float32 [T, NH, HD].
        keys, values: [all pages, PAGE, NKV, HD].
        chosen: int32 [T, BUDGET]; counts: int32 [T].
        slots, first, owner, lengths, pages: as for `prepare`.
        part: float32 [T, NH, PARTS, HD], out: weighted values, not yet divided.
        peak, weight: float32 [T, NH, PARTS], out: largest logit, and sum of weights relative to it.
        HEADS: power of two, at least NH / NKV; at least 16.
        CELLS: of a part.
        SPLIT: multiply on tensor cores; needs bfloat16 keys and values and sm_80. Not for the interpreter, whose
            bfloat16 is wrong.
    """
    row, kv, piece = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    conversation = tl.load(owner + row)
    seen = tl.load(lengths + conversation) + row - tl.load(first + conversation) + 1
    selected = tl.load(counts + row) * RATIO
    tail = seen % RATIO
    group: tl.constexpr = NH // NKV
    if piece * CELLS < selected + tail:
        j = piece * CELLS + tl.arange(0, CELLS)
        inside = j < selected + tail
        block = tl.load(chosen + row * BUDGET + j // RATIO, mask=j < selected, other=0)
        cell = tl.where(j < selected, block * RATIO + j % RATIO, seen - tail + j - selected)
        table = pages + tl.load(slots + conversation).to(tl.int64) * page_count
        page = tl.load(table + cell // PAGE, mask=inside, other=0).to(tl.int64)
        lane = tl.arange(0, HD)
        at = ((page * PAGE + cell % PAGE) * NKV + kv) * HD
        head = tl.arange(0, HEADS)
        known = head < group
        query = tl.load(
            q + (row * NH + kv * group + head)[:, None] * HD + lane[None, :], mask=known[:, None], other=0.0
        )
        key = tl.load(keys + at[:, None] + lane[None, :], mask=inside[:, None], other=0.0)
        logits = _product(query, tl.trans(key), SPLIT) * (HD**-0.5)
        logits = tl.where(inside[None, :], logits, float("-inf"))
        top = tl.max(logits, 1)
        weights = tl.exp(logits - top[:, None])
        value = tl.load(values + at[:, None] + lane[None, :], mask=inside[:, None], other=0.0)
        out = _product(weights, value, SPLIT)
        to = (row * NH + kv * group + head) * PARTS + piece
        tl.store(part + to[:, None] * HD + lane[None, :], out, mask=known[:, None])
        tl.store(peak + to, top, mask=known)
        tl.store(weight + to, tl.sum(weights, 1), mask=known)


@triton.jit
def merge(
    part, peak, weight, qg, counts, first, owner, lengths, gated, q, s, sums,
    NH: tl.constexpr, HD: tl.constexpr, RATIO: tl.constexpr, CELLS: tl.constexpr, PARTS: tl.constexpr,
    ROOM: tl.constexpr,
):  # fmt: skip
    """Merge a row's parts, gate, and quantise for the output projection. Grid: (T, NH).

    Args:
        part, peak, weight: as `attend` leaves them.
        qg: float32 [T, NH, 2, HD].
        counts, first, owner, lengths: as for `attend`.
        gated: float32 [T, NH*HD], out; q, s, sums: the same quantised, out.
        ROOM: power of two, at least PARTS.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    conversation = tl.load(owner + row)
    seen = tl.load(lengths + conversation) + row - tl.load(first + conversation) + 1
    pieces = (tl.load(counts + row) * RATIO + seen % RATIO + CELLS - 1) // CELLS
    lane = tl.arange(0, HD)
    part_ = tl.arange(0, ROOM)
    there = part_ < pieces
    at = (row * NH + head) * PARTS
    peaks = tl.load(peak + at + part_, mask=there, other=float("-inf"))
    scale = tl.exp(peaks - tl.max(peaks, 0))
    below = tl.sum(scale * tl.load(weight + at + part_, mask=there, other=0.0), 0)
    sums_ = tl.load(part + (at + part_)[:, None] * HD + lane[None, :], mask=there[:, None], other=0.0)
    total = tl.sum(scale[:, None] * sums_, 0)
    out = total / below * sigmoid(tl.load(qg + (row * NH + head) * 2 * HD + HD + lane))
    tl.store(gated + (row * NH + head) * HD + lane, out)
    store_quantised(q, s, sums, row, out, head * HD // 32, (head + 1) * HD // 32, NH * HD // 32, HD // 32)
