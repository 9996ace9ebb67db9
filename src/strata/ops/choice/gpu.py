"""The likeliest tokens of each row and how many rows a window keeps, on a GPU, so that the host reads a few numbers.

The head's 248,320 float32 logits of a row are 1 MB: 0.24 us at 4.2 TB/s, 20 us over PCIe 4. What the host needs goes to
pinned memory, as 32-bit words: `told`, for each row ``[bad, sum, TOP ids, TOP logits]``, floats by their bits, and
`kept`, for each conversation.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait

NOTHING = tl.constexpr(0x7FFFFFFF)


@triton.jit
def _largest(value, index):
    """The largest value, of equal ones the lowest index: by pairs, as integers have it."""
    top = tl.max(value, 0)
    return top, tl.min(tl.where(value == top, index, NOTHING), 0)


@triton.jit
def best_parts(
    logits, banned, peaks, places, sums, faults, V, PARTS, BLOCK: tl.constexpr, TOP: tl.constexpr, PDL: tl.constexpr
):
    """One part of a row. Grid: (T, PARTS).

    Args:
        logits: float32 [T, V].
        banned: int8 [V], 1 for ids that may never be chosen and have no probability, whatever was computed for them.
        peaks: float32 [T, PARTS, TOP], out: the largest; minus infinity where there are no more.
        places: int32 [T, PARTS, TOP], out: where, of equals the lower first.
        sums: float32 [T, PARTS], out: of exponentials relative to the peak.
        faults: int32 [T, PARTS], out: 1 if a logit is NaN or infinite.
        BLOCK: of a part.
        TOP: how many.
    """
    release(PDL)
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    known = at < V
    allowed = known & (tl.load(banned + at, mask=known, other=1) == 0)
    wait(PDL)
    x = tl.load(logits + row.to(tl.int64) * V + at, mask=allowed, other=0.0)
    finite = tl.abs(x) < float("inf")  # neither infinite nor NaN
    fault = tl.max(tl.where(finite, 0, 1), 0)
    x = tl.where(allowed & finite, x, float("-inf"))
    to = row * PARTS + part
    top, place = _largest(x, at)
    floor = tl.where(top > float("-inf"), top, 0.0)
    tl.store(sums + to, tl.sum(tl.exp(x - floor), 0))
    tl.store(faults + to, fault)
    tl.store(peaks + to * TOP, top)
    tl.store(places + to * TOP, place)
    for i in tl.static_range(1, TOP):
        x = tl.where(at == place, float("-inf"), x)
        top, place = _largest(x, at)
        tl.store(peaks + to * TOP + i, top)
        tl.store(places + to * TOP + i, place)


@triton.jit
def best(
    peaks, places, sums, faults, tokens, bad, told, PARTS, BLOCK: tl.constexpr, ENTRIES: tl.constexpr,
    TOP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Put a row's parts together. Grid: (T,).

    Args:
        peaks, places, sums, faults: as `best_parts` leaves them.
        tokens: int32 [T], out: the likeliest.
        bad: int32 [T], out: 1 if the row is no distribution, or every id is banned.
        told: int32 [T, 2 + 2 TOP], out; the sum is of exponentials relative to the largest logit.
        BLOCK: power of two, at least PARTS.
        ENTRIES: power of two, at least PARTS TOP.
    """
    release(PDL)
    row = tl.program_id(0)
    part = tl.arange(0, BLOCK)
    inside = part < PARTS
    at = row * PARTS + part
    entry = tl.arange(0, ENTRIES)
    there = entry < PARTS * TOP
    wait(PDL)
    x = tl.load(peaks + row * PARTS * TOP + entry, mask=there, other=float("-inf"))
    ids = tl.load(places + row * PARTS * TOP + entry, mask=there, other=NOTHING)
    peak = tl.load(peaks + at * TOP, mask=inside, other=float("-inf"))
    share = tl.load(sums + at, mask=inside, other=0.0)
    wrong = tl.max(tl.load(faults + at, mask=inside, other=0), 0)
    top, place = _largest(x, ids)
    wrong = tl.where(top > float("-inf"), wrong, 1)
    floor = tl.where(top > float("-inf"), top, 0.0)
    total = tl.sum(share * tl.exp(peak - floor), 0)
    line = told + row * (2 + 2 * TOP)
    tl.store(tokens + row, place)
    tl.store(bad + row, wrong)
    tl.store(line, wrong)
    tl.store(line + 1, total.to(tl.int32, bitcast=True))
    for i in tl.static_range(TOP):
        tl.store(line + 2 + i, place)
        tl.store(line + 2 + TOP + i, top.to(tl.int32, bitcast=True))
        if i + 1 < TOP:
            x = tl.where(ids == place, float("-inf"), x)
            top, place = _largest(x, ids)


@triton.jit
def accept(ids, tokens, bad, stops, first, accepted, kept, ROWS: tl.constexpr, STOPS: tl.constexpr, PDL: tl.constexpr):
    """How many rows of each conversation's window become part of its text. Grid: (conversations,).

    A row counts if the rows before it are finite and are no end, and the last of them chose the very token this one was
    fed; and if it is finite itself.

    Args:
        ids: int32 [T], tokens fed.
        tokens, bad: int32 [T], as `best` leaves them.
        stops: int32 [conversations, STOPS], tokens that end the text, and -1.
        first: int32 [conversations + 1].
        accepted, kept: int32 [conversations], out.
        ROWS: most rows of a conversation.
    """
    release(PDL)
    conversation = tl.program_id(0)
    begin = tl.load(first + conversation)
    rows = tl.load(first + conversation + 1) - begin
    ends = tl.load(stops + conversation * STOPS + tl.arange(0, STOPS))
    wait(PDL)
    going = 1 - tl.load(bad + begin)
    count = going
    for i in tl.static_range(1, ROWS):
        inside = i < rows
        chosen = tl.load(tokens + begin + i - 1, mask=inside, other=-1)
        same = (tl.load(ids + begin + i, mask=inside, other=-2) == chosen).to(tl.int32)
        ended = tl.max((ends == chosen).to(tl.int32), 0)
        going = going * same * (1 - ended) * (1 - tl.load(bad + begin + i, mask=inside, other=1))
        count += going
    tl.store(accepted + conversation, count)
    tl.store(kept + conversation, count)


@triton.jit
def link(tokens, bad, told, floor, ids, found, PDL: tl.constexpr):
    """A chain's next token: to the host, and to the step that follows. Grid: (1,).

    Args:
        tokens, bad, told: as `best` leaves them for one row, with one alternative.
        floor: int32 [1], the bits of the least probability of a token; the chain ends before one that has less.
        ids: int32 [1], out: what the next step is fed, whether the chain has ended or not.
        found: int32 [1], out: the token, or -1, where the chain ends.
    """
    release(PDL)
    wait(PDL)
    token = tl.load(tokens)
    least = tl.load(floor).to(tl.float32, bitcast=True)
    # The likeliest weighs one, of this sum.
    sure = least * tl.load(told + 1).to(tl.float32, bitcast=True) <= 1.0
    tl.store(ids, token)
    tl.store(found, tl.where(sure & (tl.load(bad) == 0), token, -1))
