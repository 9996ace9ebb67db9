"""Sparse attention of many rows: scores of blocks, and attention, where every row selects its own cells.

A row with no more complete blocks than the budget holds attends all cells before it (`dense`): rows lie beside one
another in a tile and share keys and values. Beyond that each row has a list of blocks (`strata.ops.qsa.choose.choose`),
and a program takes one row's heads of one key head (`sparse`). Which of the two serves a row depends on its place
alone. Sums go over cells in rising order, 64 at a time, with the usual running maximum: where nothing of a tile of
cells counts for a row, its sums are multiplied by one and nothing is added, so company cannot be seen.

Keys and values in eight bits (`strata.model.kv.q8`) are multiplied as they read back, in float16: 11 bits, as all
operands of prompts. Queries are two float16, weights one.
"""

import triton
import triton.language as tl

from strata.ops.device import CELL_BLOCK, load_heads, sigmoid
from strata.ops.prompt.halves import FINE, split, to_half
from strata.ops.prompt.multiply import dot, fresh
from strata.ops.qsa.gpu import PAGE

CELLS = tl.constexpr(64)


@triton.jit
def _matmul(x, y, SPLIT: tl.constexpr):
    """Float32 times what keys or values are stored as. On tensor cores x is split into two bfloat16: 16 of 24 bits."""
    if SPLIT:
        high = x.to(tl.bfloat16)
        rest = (x - high.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(rest, y, tl.dot(high, y))
    else:
        total = fresh(x, y.to(tl.float32))
    return total


@triton.jit
def _rounded(x, y, total, SPLIT: tl.constexpr):
    """The same with x rounded to bfloat16, added to ``total``."""
    if SPLIT:
        total = tl.dot(x.to(tl.bfloat16), y, total)
    else:
        total = dot(x, y.to(tl.float32), total)
    return total


@triton.jit
def score(
    iq, blocks, slots, lengths, counts, pages, page_count, out, peaks, out_count, begin,
    IH: tl.constexpr, ID: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr, ROWS: tl.constexpr,
    BLOCKS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Scores of the complete blocks of rows beyond the budget. Grid: (most rows / ROWS, most blocks / BLOCKS).

    Args:
        iq: float32 [T, IH, ID]; blocks: float32 [all pages, PAGE/RATIO, ID].
        slots, lengths, counts: int32, their firsts are the conversation's place, its committed cells, and T.
        pages: int32 [all slots, page_count].
        out: float32 [rows, out_count], out, of rows from ``begin``.
        peaks: float32 [rows, out_count / TILE], out: the largest of every TILE scores.
        begin: first row.
        BLOCKS: a multiple of TILE.
    """
    count, committed = tl.load(counts), tl.load(lengths)
    first = begin + tl.program_id(0) * ROWS
    last = tl.minimum(first + ROWS, count) - 1
    b = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    most = (committed + last + 1) // RATIO
    if (first < count) & (most > BUDGET) & (tl.program_id(1) * BLOCKS < most):
        per_page: tl.constexpr = PAGE // RATIO
        table = pages + tl.load(slots).to(tl.int64) * page_count
        page = tl.load(table + b // per_page, mask=b < most, other=0).to(tl.int64)
        part = tl.arange(0, ID)
        at = (page * per_page + b % per_page) * ID
        key = to_half(tl.load(blocks + at[None, :] + part[:, None], mask=(b < most)[None, :], other=0.0))
        row = first + tl.arange(0, ROWS)
        total = tl.zeros((ROWS, BLOCKS), tl.float32)
        for h in tl.static_range(IH):
            query = iq + (tl.minimum(row, last)[:, None] * IH + h) * ID + part[None, :]
            total += tl.maximum(fresh(to_half(tl.load(query)), key), 0.0)
        complete = ((committed + row + 1) // RATIO)[:, None]
        inside = (row <= last)[:, None] & (b[None, :] < complete)
        tl.store(out + (row - begin)[:, None] * out_count + b[None, :], total, mask=inside)
        tile = tl.program_id(1) * (BLOCKS // TILE) + tl.arange(0, BLOCKS // TILE)
        peak = tl.max(tl.reshape(tl.where(inside, total, 0.0), (ROWS, BLOCKS // TILE, TILE)), 2)
        there = (row <= last)[:, None] & (tile[None, :] * TILE < complete)
        tl.store(peaks + (row - begin)[:, None] * (out_count // TILE) + tile[None, :], peak, mask=there)


@triton.jit
def _logits(q, key, SPLIT: tl.constexpr, EIGHT: tl.constexpr):
    """Products of queries and keys."""
    if EIGHT:
        high, rest = split(q)
        y = tl.trans(to_half(key))
        total = fresh(high, y) + fresh(rest, y) / FINE
    else:
        total = _matmul(q, tl.trans(key), SPLIT)
    return total


@triton.jit
def _summed(weights, value, total, SPLIT: tl.constexpr, EIGHT: tl.constexpr):
    """``total`` and weighted values."""
    if EIGHT:
        total = dot(to_half(weights), to_half(value), total)
    else:
        total = _rounded(weights, value, total, SPLIT)
    return total


@triton.jit
def _load(cells, at, inside, N: tl.constexpr, HD: tl.constexpr):
    """Heads of ``N`` cells, [N, HD]: as they are stored, or, where that is in eight bits, as they read back."""
    if cells.dtype.element_ty == tl.uint8:
        x = load_heads(cells, at * (HD // 32 * CELL_BLOCK), inside, N, HD)
    else:
        x = tl.load(cells + at[:, None] * HD + tl.arange(0, HD)[None, :], mask=inside[:, None], other=0.0)
    return x


@triton.jit
def _softmax_step(
    q, key, value, visible, peak, weight, total, HD: tl.constexpr, SPLIT: tl.constexpr, EIGHT: tl.constexpr
):
    """One tile of cells: new running maximum, sum of weights, and weighted values."""
    logits = tl.where(visible, _logits(q, key, SPLIT, EIGHT) * (HD**-0.5), float("-inf"))
    top = tl.maximum(peak, tl.max(logits, 1))
    safe = tl.where(top == float("-inf"), 0.0, top)  # no cell yet
    scale = tl.exp(peak - safe)
    weights = tl.exp(logits - safe[:, None])
    return top, weight * scale + tl.sum(weights, 1), _summed(weights, value, total * scale[:, None], SPLIT, EIGHT)


@triton.jit
def dense(
    q, keys, values, qg, slots, lengths, counts, pages, page_count, gated,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr,
    BM: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Attention of rows that see all cells before them. Grid: (most rows * NH / NKV / BM, NKV).

    A tile is ``BM`` neighbours among the pairs of row and head, rows outermost.

    Args:
        q: float32 [T, NH, HD].
        keys, values: as for `strata.ops.qsa.gpu.prepare`.
        qg: float32 [T, NH, 2, HD], for its gates.
        slots, lengths, counts, pages: as for `score`.
        gated: float16 [T, NH*HD], out.
        SPLIT: keys and values are bfloat16 and go to tensor cores as they are. Not for the interpreter.
    """
    EIGHT: tl.constexpr = keys.dtype.element_ty == tl.uint8
    group: tl.constexpr = NH // NKV
    count, committed, kv = tl.load(counts), tl.load(lengths), tl.program_id(1)
    # Rows with at most BUDGET complete blocks come first.
    most = tl.minimum(count, (BUDGET + 1) * RATIO - 1 - committed)
    first = tl.program_id(0) * BM // group
    if first < most:
        i = tl.program_id(0) * BM + tl.arange(0, BM)
        row, head = i // group, kv * group + i % group
        there = row < most
        row = tl.minimum(row, most - 1)
        lane = tl.arange(0, HD)
        flat = (row * NH + head)[:, None] * HD + lane[None, :]
        query = tl.load(q + flat)
        table = pages + tl.load(slots).to(tl.int64) * page_count
        end = committed + tl.minimum((tl.program_id(0) * BM + BM - 1) // group, most - 1) + 1
        peak = tl.full((BM,), float("-inf"), tl.float32)
        weight = tl.zeros((BM,), tl.float32)
        total = tl.zeros((BM, HD), tl.float32)
        for cell in range(0, end, CELLS):
            j = cell + tl.arange(0, CELLS)
            page = tl.load(table + cell // PAGE).to(tl.int64)
            at, inside = (page * PAGE + j % PAGE) * NKV + kv, j < end
            key, value = _load(keys, at, inside, CELLS, HD), _load(values, at, inside, CELLS, HD)
            visible = j[None, :] <= (committed + row)[:, None]
            peak, weight, total = _softmax_step(query, key, value, visible, peak, weight, total, HD, SPLIT, EIGHT)
        gates = tl.load(qg + (row * NH + head)[:, None] * (2 * HD) + HD + lane[None, :])
        tl.store(gated + flat, to_half(total / weight[:, None] * sigmoid(gates)), mask=there[:, None])


@triton.jit
def sparse(
    q, keys, values, qg, chosen, slots, lengths, counts, pages, page_count, gated, begin,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, RATIO: tl.constexpr, BUDGET: tl.constexpr,
    HEADS: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Attention of rows from ``begin`` that have more than BUDGET complete blocks. Grid: (rows, NKV).

    Args:
        q, keys, values, qg, slots, lengths, counts, pages, gated, SPLIT: as for `dense`.
        chosen: int32 [rows, BUDGET], blocks of each row from ``begin``, rising.
        HEADS: power of two, at least NH / NKV and 16.
    """
    EIGHT: tl.constexpr = keys.dtype.element_ty == tl.uint8
    group: tl.constexpr = NH // NKV
    row, kv = begin + tl.program_id(0), tl.program_id(1)
    seen = tl.load(lengths) + row + 1
    if (row < tl.load(counts)) & (seen // RATIO > BUDGET):
        head, lane = tl.arange(0, HEADS), tl.arange(0, HD)
        known = head < group
        flat = (row * NH + kv * group + head)[:, None] * HD + lane[None, :]
        query = tl.load(q + flat, mask=known[:, None], other=0.0)
        table = pages + tl.load(slots).to(tl.int64) * page_count
        own = chosen + tl.program_id(0) * BUDGET
        selected: tl.constexpr = BUDGET * RATIO
        tail = seen % RATIO
        peak = tl.full((HEADS,), float("-inf"), tl.float32)
        weight = tl.zeros((HEADS,), tl.float32)
        total = tl.zeros((HEADS, HD), tl.float32)
        for first in range(0, selected + tail, CELLS):
            j = first + tl.arange(0, CELLS)
            inside = j < selected + tail
            block = tl.load(own + j // RATIO, mask=j < selected, other=0)
            cell = tl.where(j < selected, block * RATIO + j % RATIO, seen - tail + j - selected)
            page = tl.load(table + cell // PAGE, mask=inside, other=0).to(tl.int64)
            at = (page * PAGE + cell % PAGE) * NKV + kv
            key, value = _load(keys, at, inside, CELLS, HD), _load(values, at, inside, CELLS, HD)
            peak, weight, total = _softmax_step(
                query, key, value, inside[None, :], peak, weight, total, HD, SPLIT, EIGHT
            )
        gates = tl.load(
            qg + (row * NH + kv * group + head)[:, None] * (2 * HD) + HD + lane[None, :],
            mask=known[:, None], other=0.0,
        )  # fmt: skip
        tl.store(gated + flat, to_half(total / weight[:, None] * sigmoid(gates)), mask=known[:, None])
