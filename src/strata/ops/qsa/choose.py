"""Which blocks a row attends: the largest of its scores, found by one program of many warps.

`strata.ops.qsa.gpu.score` leaves the scores, the largest of every tile, and how many lie in each bin.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait

BINS = tl.constexpr(2048)
"""Of a row's scores, by their bits: 128 from a power of two to the next, from 2^-6 to 2^10. What lies outside is in the
first and in the last."""

_FIRST, _BITS = tl.constexpr((127 - 6) << 7), tl.constexpr(16)
_INFINITE = tl.constexpr(0x7F800000)


@triton.jit
def bin_of(bits):
    """The bin of a score, by its bits; NaN is zero, as when blocks are chosen."""
    bits = tl.where(bits > _INFINITE, 0, tl.maximum(bits, 0))
    return tl.minimum(tl.maximum((bits >> _BITS) - _FIRST, 0), BINS - 1)


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
def _threshold(key, low, above, high, below, BUDGET: tl.constexpr, EVEN: tl.constexpr):
    """A key that just BUDGET keys reach, or the one whose equals there is not room for.

    Returns it, how many reach it, and how many exceed it if those are more than BUDGET. Whichever way it is found, the
    keys to take are the same; so each step tries a guess by how fast counts fall, a little less, a little more, and the
    middle. What a step takes is a sum over all warps, and one sum holds four counts: of random scores 4.6 to 5.7 steps
    find it, where guessing and halving by turns took 10 to 17.

    Args:
        key: int32 [LINE, lines]; bits of non-negative floats, and -1 where there is nothing; fewer than 2^15.
        low, above: at least BUDGET keys reach the one, and no more than the other, which is more than BUDGET.
        high, below: no more than the other reach the one, which are fewer than BUDGET.
        EVEN: keys between the two are few and spread evenly: then steps are as far apart as keys are.
    """
    fourth = low + 1  # zeros are the commonest equals
    finite: tl.constexpr = 0x7F7FFFFF
    while (above != BUDGET) & (high - low > 1):
        bottom = tl.minimum(low, finite).to(tl.float32, bitcast=True)
        wide = tl.minimum(high, finite).to(tl.float32, bitcast=True) - bottom
        if EVEN:
            each = wide / (above - below).to(tl.float32)
            guess, apart = bottom + each * (above - BUDGET).to(tl.float32), each * 0.75
        else:
            most = _logarithm(above.to(tl.float32))
            share = (most - _logarithm(BUDGET + 0.0)) / (most - _logarithm(tl.maximum(below.to(tl.float32), 0.5)))
            guess, apart = bottom + wide * share, wide * 0.0625
        first = (guess - apart).to(tl.int32, bitcast=True)
        third = (guess + apart).to(tl.int32, bitcast=True)
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
def _upto(numbers, lines):
    """A running sum of [LINE, LINES], given what each line sums up to.

    In two steps, because a running sum over all goes through memory once for each warp and part.
    """
    return (tl.cumsum(lines, 0) - lines)[None, :] + tl.cumsum(numbers, 0)


@triton.jit
def _select(key, low, count, high, below, BUDGET: tl.constexpr, EVEN: tl.constexpr):
    """Which of more than BUDGET keys to take, each one's place among them, and what they reach; of equals the first.

    Args:
        key, low, high, below, EVEN: as for `_threshold`, and `count` as `above`.
    """
    reached, above, below = _threshold(key, low, count, high, below, BUDGET, EVEN)
    room = tl.where(above == BUDGET, BUDGET, BUDGET - below)  # for those that are equal
    equal = key == reached
    both = (key > reached).to(tl.int32) + (equal.to(tl.int32) << 16)
    ranks = _upto(both, tl.sum(both, 0))
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
    none = tl.full([], 0, tl.int32)
    take, place, _ = _select(key, none, complete, tl.max(key) + 1, none, BUDGET, False)
    tl.store(out + place, b, mask=take)


@triton.jit
def _by_levels(scores, peaks, complete, out, BUDGET: tl.constexpr, TILE: tl.constexpr, LINE: tl.constexpr):
    """Choose among blocks, or first among tiles of them, or among tiles of tiles."""
    SIZE: tl.constexpr = BUDGET * TILE
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
        # The blocks reach what their tiles do.
        take, place, low = _select(key, low, count, high, high * 0, BUDGET, False)
        tl.debug_barrier()  # everyone has read what is overwritten
        tl.store(out + place, b, mask=take)


@triton.jit
def _by_bins(scores, peaks, bins, complete, out, BUDGET: tl.constexpr, TILE: tl.constexpr, LINE: tl.constexpr):
    """Choose by what is known of the counts: the smallest score that is chosen lies in a bin.

    So the blocks that may be chosen lie in tiles whose peaks reach that bin. If those are no more than BUDGET, they are
    taken without a search, and among their blocks little is left to be searched. Else nothing is done.

    Returns:
        1 if it was done, else 0.
    """
    SIZE: tl.constexpr = BUDGET * TILE
    i = _numbers(BINS // LINE, LINE)
    counts = tl.load(bins + (BINS - 1) - i)
    upto = _upto(counts, tl.sum(counts, 0))  # from the last bin down
    e = _numbers(SIZE // LINE, LINE)
    # On their way while it is found. One, but the compiler does not know it: it would have each thread load four
    # neighbours, and bring what follows from there into the order of the blocks and back.
    one = (complete > SIZE).to(tl.int32)
    peak = _keys(peaks, e * one, (complete + TILE - 1) // TILE)
    # The last of those that hold too few, with what they hold.
    lacking = tl.max(tl.where(upto < BUDGET, ((i + 1) << 16) + upto, 0))
    below, lower = lacking & 0xFFFF, lacking >> 16
    which = -lower + (BINS - 1)
    count = below + tl.load(bins + which)
    low = tl.where(which > 0, (which + _FIRST) << _BITS, 0)
    high = tl.where(which < BINS - 1, (which + 1 + _FIRST) << _BITS, _INFINITE + 1)
    near = (peak >= low).to(tl.int32)
    lines = tl.sum(near, 0)
    taken = tl.sum(lines)
    if taken <= BUDGET:
        tl.store(out + _upto(near, lines) - 1, e, mask=near > 0)
        tl.debug_barrier()
        there = e // TILE < taken
        b = tl.where(there, tl.load(out + e // TILE, mask=there, other=0) * TILE + e % TILE, complete)
        take, place, _ = _select(_keys(scores, b, complete), low, count, high, below, BUDGET, True)
        tl.debug_barrier()  # everyone has read what is overwritten
        tl.store(out + place, b, mask=take)
    return (taken <= BUDGET).to(tl.int32)


@triton.jit
def choose(
    scores, peaks, bins, score_count, seen, chosen,
    RATIO: tl.constexpr, BUDGET: tl.constexpr, TILE: tl.constexpr, COUNTED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The BUDGET blocks with the largest scores, of equal ones the lower, in rising order. Grid: (T,).

    Nothing is done where the budget holds everything.

    A score is never negative, so its bits order like an integer; they stay in registers while the smallest chosen one
    is searched (`_threshold`). More than BUDGET TILE are met in tiles, and more tiles than that in tiles of tiles. A
    block of a tile that is not among the BUDGET ones with the largest peaks is not chosen: each of those has a block
    before it. So the same is done with peaks, then with the blocks of the tiles that were taken, which costs the same
    whatever the length: by the same instructions, for those come from device memory, and that takes longer than what
    they do.

    Where scores are counted by bins, no threshold is searched among tiles: see `_by_bins`.

    Args:
        scores: float32 [T, score_count]; peaks: float32 [T, score_count / TILE]; as `score` leaves them.
        bins: int32 [T, BINS], as `score` leaves them, with COUNTED.
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
            done = tl.full([], 0, tl.int32)
            if COUNTED:  # noqa: SIM102  # a constant
                if (complete > SIZE) & (tiles <= SIZE):
                    done = _by_bins(scores, peaks, bins + row * BINS, complete, out, BUDGET, TILE, LINE)
            if done == 0:
                _by_levels(scores, peaks, complete, out, BUDGET, TILE, LINE)
