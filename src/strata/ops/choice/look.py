"""The tokens that may be chosen from each row, and what all weigh together, so that the host reads half a kilobyte.

Penalties and bias are applied where the logits are (`adjust`); banned ids and what a grammar does not allow are left
out. A part of a row finds its `MOST` largest logits (`look_parts`), those of all parts are put together (`look`), and
one more program finds the token at the row's draw (`draw`). `strata.ops.choice.reference` is the same in NumPy.

The largest are found by halving over the bits of a key that orders like the number: 32 counts, whatever the row. Where
something is adjusted, a row of 248,320 logits is copied first: 1 MB there and back.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait

HEAD = tl.constexpr(12)
"""Words that `told` has of a row before its candidates: fault, candidates, tokens that may be chosen, largest, total,
weight, floor, drawn token, its logit, share before it and up to it, and one that means nothing."""

LEAST = tl.constexpr(-0x80000000)

OFF = tl.constexpr(2.0**-14)
"""How far a border must be away, as a share, for `settle` to be certain: four times `engine.candidates.ROUNDED`."""


@triton.jit
def adjust(logits, y, codes, shifts, repetition, V, M, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """Penalties and bias. Grid: (T, M / BLOCK).

    Args:
        logits: float32 [T, V].
        y: float32 [T, V], a copy of them, out.
        codes: int32 [T, M], twice the id, and one more if the token counts as repeated; -1 for none.
        shifts: float32 [T, M], what is taken from the logit.
        repetition: float32 [T], the penalty.
    """
    release(PDL)
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    wait(PDL)
    code = tl.load(codes + row * M + at, mask=at < M, other=-1)
    shift = tl.load(shifts + row * M + at, mask=at < M, other=0.0)
    r = tl.load(repetition + row)
    place = row.to(tl.int64) * V + (code >> 1)
    x = tl.load(logits + place, mask=code >= 0, other=0.0)
    again = tl.where(x > 0.0, tl.math.div_rn(x, tl.zeros([BLOCK], tl.float32) + r), x * r)
    tl.store(y + place, tl.where((code & 1) != 0, again, x) - shift, mask=code >= 0)


@triton.jit
def _key(y):
    """An integer that orders like the number, with one zero; the least one of all for minus infinity."""
    bits = tl.where(y == 0.0, 0.0, y).to(tl.int32, bitcast=True)
    return tl.where(y > float("-inf"), bits ^ ((bits >> 31) & 0x7FFFFFFF), LEAST)


@triton.jit
def _chosen(key, MOST: tl.constexpr):
    """Which are the MOST largest, of equal ones the first, and the place of each among them, in their order."""
    low = tl.where(tl.sum((key >= 0).to(tl.int32), 0) >= MOST, 0, LEAST)
    for i in range(31):
        trial = low + (1 << (30 - i))
        low = tl.where(tl.sum((key >= trial).to(tl.int32), 0) >= MOST, trial, low)
    above = key > low
    room = MOST - tl.sum(above.to(tl.int32), 0)
    equal = (key == low) & (key > LEAST)
    take = above | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= room))
    return take, tl.cumsum(take.to(tl.int32), 0) - 1


@triton.jit
def _entries(values, first, count, STEP: tl.constexpr):
    """Some of `count` numbers, as keys."""
    at = first + tl.arange(0, STEP)
    value = tl.load(values + at, mask=at < count, other=float("-inf"))
    return at, value, _key(value)


@triton.jit
def _border(values, count, MOST: tl.constexpr, STEP: tl.constexpr):
    """The key that the MOST largest of `count` numbers reach, and how many equal ones are among them.

    Numbers are read again for every step, from the nearest cache: few instructions are worth more than not reading.
    """
    low = tl.full([], LEAST, tl.int32)
    for i in range(32):
        trial = tl.where(i == 0, 0, low + (1 << tl.minimum(31 - i, 30)))
        reached = tl.zeros([STEP], tl.int32)
        for first in range(0, count, STEP):
            _, _, key = _entries(values, first, count, STEP)
            reached += (key >= trial).to(tl.int32)
        low = tl.where(tl.sum(reached, 0) >= MOST, trial, low)
    above = tl.zeros([STEP], tl.int32)
    for first in range(0, count, STEP):
        _, _, key = _entries(values, first, count, STEP)
        above += (key > low).to(tl.int32)
    return low, MOST - tl.sum(above, 0)


@triton.jit
def _admitted(x, y, banned, masks, row, at, V, WORDS, MASKED: tl.constexpr):
    """Logits of some ids as they may be chosen; minus infinity where they may not."""
    known = at < V
    allowed = known & (tl.load(banned + at, mask=known, other=1) == 0)
    if MASKED:
        bits = tl.load(masks + row * WORDS + at // 32, mask=known, other=0)
        allowed = allowed & (((bits >> (at % 32)) & 1) != 0)
    place = row.to(tl.int64) * V + at
    finite = tl.abs(tl.load(x + place, mask=known, other=float("inf"))) < float("inf")
    return tl.where(allowed & finite, tl.load(y + place, mask=known, other=float("-inf")), float("-inf"))


@triton.jit
def _weights(y, top, scale):
    """Weights relative to the largest, which is not minus infinity unless all are."""
    there = y > float("-inf")
    return tl.where(there, tl.exp(tl.where(there, y - top, 0.0) * scale), 0.0)


@triton.jit
def look_parts(
    logits, y, banned, masks, scales, peaks, sums, faults, tops, weights, counts, ids, values, V, PARTS, WORDS,
    BLOCK: tl.constexpr, MOST: tl.constexpr, MASKED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One part of a row. Grid: (T, PARTS).

    Args:
        logits: float32 [T, V]; y: the same adjusted, or the same.
        banned: int8 [V], 1 for ids that are no tokens.
        masks: int32 [T, WORDS], a bit for every id that the grammar allows; not looked at unless MASKED.
        scales: float32 [T], one over the temperature.
        peaks, sums, faults: [T, PARTS], out: as `strata.ops.choice.gpu.best_parts` leaves them, of the model's own.
        tops, weights: float32 [T, PARTS], out: the largest that may be chosen, and the weight of all relative to it.
        counts: int32 [T, PARTS], out: how many may be chosen.
        ids, values: int32 and float32 [T, PARTS, MOST], out: the largest that may be chosen, by rising id; minus
            infinity where there are no more.
    """
    release(PDL)
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    known = at < V
    own = known & (tl.load(banned + at, mask=known, other=1) == 0)
    wait(PDL)
    x = tl.load(logits + row.to(tl.int64) * V + at, mask=own, other=0.0)
    finite = tl.abs(x) < float("inf")
    to = row * PARTS + part
    tl.store(faults + to, tl.max(tl.where(finite, 0, 1), 0))
    x = tl.where(own & finite, x, float("-inf"))
    peak = tl.max(x, 0)
    tl.store(peaks + to, peak)
    tl.store(sums + to, tl.sum(tl.exp(x - tl.where(peak > float("-inf"), peak, 0.0)), 0))
    may = _admitted(logits, y, banned, masks, row, at, V, WORDS, MASKED)
    top = tl.max(may, 0)
    tl.store(tops + to, top)
    tl.store(weights + to, tl.sum(_weights(may, top, tl.load(scales + row)), 0))
    tl.store(counts + to, tl.sum((may > float("-inf")).to(tl.int32), 0))
    take, place = _chosen(_key(may), MOST)
    tl.store(ids + to * MOST + place, at, mask=take)
    tl.store(values + to * MOST + place, may, mask=take)
    lane = tl.arange(0, MOST)
    tl.store(values + to * MOST + lane, float("-inf"), mask=lane >= tl.sum(take.to(tl.int32), 0))


@triton.jit
def look(
    logits, peaks, sums, faults, tops, weights, counts, ids, values, scales, draws, found, where, told, picked, V,
    PARTS,
    BLOCK: tl.constexpr, STEP: tl.constexpr, MOST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Put a row's parts together. Grid: (T,).

    Args:
        logits, peaks, sums, faults, tops, weights, counts, ids, values, scales: as for `look_parts`.
        draws: float32 [T], from 0 to 1.
        found: int32 [T], out: the part that the draw falls into.
        where: float32 [T, 4], out: the weight up to the draw, before that part, of all; the largest.
        told: int32 [T, HEAD + 2 MOST], out: see `HEAD`, then ids by rising id, then the model's own logits; floats by
            their bits. What is drawn is left to `draw`.
        picked: float32 [T, MOST], out: the adjusted logits of those.
        BLOCK: power of two, at least PARTS.
        STEP: candidates of parts at a time, power of two.
    """
    release(PDL)
    row = tl.program_id(0)
    part = tl.arange(0, BLOCK)
    inside, at = part < PARTS, row * PARTS + part
    wait(PDL)
    line = told + row * (HEAD + 2 * MOST)
    peak = tl.load(peaks + at, mask=inside, other=float("-inf"))
    largest = tl.max(peak, 0)
    share = tl.load(sums + at, mask=inside, other=0.0)
    total = tl.sum(share * tl.exp(peak - tl.where(largest > float("-inf"), largest, 0.0)), 0)
    tl.store(line, tl.max(tl.load(faults + at, mask=inside, other=0), 0))
    tl.store(line + 2, tl.sum(tl.load(counts + at, mask=inside, other=0), 0))
    tl.store(line + 3, largest.to(tl.int32, bitcast=True))
    tl.store(line + 4, total.to(tl.int32, bitcast=True))
    tops_ = tl.load(tops + at, mask=inside, other=float("-inf"))
    top = tl.max(tops_, 0)
    weight = tl.load(weights + at, mask=inside, other=0.0) * _weights(tops_, top, tl.load(scales + row))
    upto = tl.cumsum(weight, 0)
    whole = tl.max(upto, 0)
    wanted = tl.load(draws + row) * whole
    mine = tl.sum((inside & (upto <= wanted)).to(tl.int32), 0)
    tl.store(line + 5, whole.to(tl.int32, bitcast=True))
    tl.store(found + row, mine)
    tl.store(where + row * 4, wanted)
    tl.store(where + row * 4 + 1, tl.max(tl.where(part < mine, upto, 0.0), 0))
    tl.store(where + row * 4 + 2, whole)
    tl.store(where + row * 4 + 3, top)
    values += row * PARTS * MOST
    border, room = _border(values, PARTS * MOST, MOST, STEP)
    taken, equals = tl.full([], 0, tl.int32), tl.full([], 0, tl.int32)
    least = tl.full([STEP], float("inf"), tl.float32)
    for first in range(0, PARTS * MOST, STEP):
        entry, value, key = _entries(values, first, PARTS * MOST, STEP)
        equal = ((key == border) & (key > LEAST)).to(tl.int32)
        take = (key > border) | ((equal != 0) & (equals + tl.cumsum(equal, 0) <= room))
        place = taken + tl.cumsum(take.to(tl.int32), 0) - 1
        id_ = tl.load(ids + row * PARTS * MOST + entry, mask=take, other=0)
        logit = tl.load(logits + row.to(tl.int64) * V + id_, mask=take, other=0.0)
        tl.store(line + HEAD + place, id_, mask=take)
        tl.store(line + HEAD + MOST + place, logit.to(tl.int32, bitcast=True), mask=take)
        tl.store(picked + row * MOST + place, value, mask=take)
        least = tl.minimum(least, tl.where(take, value, float("inf")))
        taken += tl.sum(take.to(tl.int32), 0)
        equals += tl.sum(equal, 0)
    tl.store(line + 1, taken)
    tl.store(line + 6, tl.min(least, 0).to(tl.int32, bitcast=True))


@triton.jit
def draw(
    logits, y, banned, masks, scales, found, where, told, V, PARTS, WORDS,
    BLOCK: tl.constexpr, MOST: tl.constexpr, MASKED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The token at a row's draw. Grid: (T,). Arguments as for `look_parts` and `look`."""
    release(PDL)
    row = tl.program_id(0)
    wait(PDL)
    part = tl.load(found + row)
    wanted, before = tl.load(where + row * 4), tl.load(where + row * 4 + 1)
    whole, top = tl.load(where + row * 4 + 2), tl.load(where + row * 4 + 3)
    lane = tl.arange(0, BLOCK)
    at = part * BLOCK + lane
    weight = _weights(_admitted(logits, y, banned, masks, row, at, V, WORDS, MASKED), top, tl.load(scales + row))
    upto = before + tl.cumsum(weight, 0)
    mine = tl.sum((upto <= wanted).to(tl.int32), 0)
    after = tl.sum(tl.where(lane == mine, upto, 0.0), 0)
    own = tl.sum(tl.where(lane == mine, weight, 0.0), 0)
    token = tl.where((part < PARTS) & (mine < BLOCK) & (own > 0.0), part * BLOCK + mine, -1)
    logit = tl.load(logits + row.to(tl.int64) * V + token, mask=token >= 0, other=0.0)
    over = tl.where(whole > 0.0, whole, 1.0)
    line = told + row * (HEAD + 2 * MOST)
    tl.store(line + 7, token)
    tl.store(line + 8, logit.to(tl.int32, bitcast=True))
    tl.store(line + 9, ((after - own) / over).to(tl.int32, bitcast=True))
    tl.store(line + 10, (after / over).to(tl.int32, bitcast=True))


@triton.jit
def _within(line, lane, u):
    """Whether a draw is certain to be that of the token that `draw` has found; the same in every lane."""
    low = tl.load(line + 9 + lane * 0).to(tl.float32, bitcast=True)
    high = tl.load(line + 10 + lane * 0).to(tl.float32, bitcast=True)
    return (low + OFF <= u) & (u < high - OFF)


@triton.jit
def settle(told, picked, scales, draws, ks, ps, ms, tokens, bad, MOST: tl.constexpr, PDL: tl.constexpr):
    """The token of each row whose logits are not adjusted, where float32 is certain of it. Grid: (T,).

    As `strata.engine.filters` and `choice`, among the candidates. Every border that decides something must be farther
    away than `OFF`: what a sum of weights may be wrong by, several times over.

    Args:
        told, picked, scales, draws: as `look` and `draw` leave them.
        ks, ps, ms: float32 [T], top_k (0 for off), top_p (1), min_p (0).
        tokens: int32 [T], out.
        bad: int32 [T], out: 1 where the token is not certain, or the row is no distribution.
    """
    release(PDL)
    row = tl.program_id(0)
    lane = tl.arange(0, MOST)
    wait(PDL)
    line = told + row * (HEAD + 2 * MOST)
    count = tl.load(line + 1)
    whole = tl.load(line + 2) <= MOST
    there = lane < count
    ids = tl.load(line + HEAD + lane, mask=there, other=0x7FFFFFFF)
    y = tl.load(picked + row * MOST + lane, mask=there, other=float("-inf"))
    # Each of the row's numbers for every lane: the interpreter does not compare single floats.
    own = row + lane * 0
    scale, u = tl.load(scales + own), tl.load(draws + own)
    k, p, m = tl.load(ks + own), tl.load(ps + own), tl.load(ms + own)
    w = _weights(y, tl.max(y, 0), scale)
    earlier = (ids[None, :] < ids[:, None]) & there[None, :]
    before = (y[None, :] > y[:, None]) | ((y[None, :] == y[:, None]) & earlier)
    before = before & there[None, :]
    rank = tl.sum(before.to(tl.int32), 1)
    first = there & (rank == 0)
    # top_k and top_p
    left = there & ((k < 0.5) | (rank.to(tl.float32) < k))
    weight = tl.load(line + 5 + lane * 0).to(tl.float32, bitcast=True)
    share = tl.where(k > 0.5, tl.sum(tl.where(left, w, 0.0), 0), weight)
    wanted = p * share
    upto = tl.sum(tl.where(before, tl.broadcast_to(w[None, :], (MOST, MOST)), 0.0), 1)  # of those before
    near = left & (rank > 0) & (tl.abs(upto - wanted) <= share * OFF)
    reached = whole | (k > 0.5) | (tl.sum(w, 0) >= wanted * (1.0 + OFF))
    sure = (p >= 1.0) | (reached & (tl.sum(near.to(tl.int32), 0) == 0))
    left = left & (first | (p >= 1.0) | (upto < wanted))
    # min_p
    near = left & (tl.abs(w - m) <= m * OFF)
    least = tl.min(tl.where(there, w, 1.0), 0)
    reached = whole | (k > 0.5) | (p < 1.0) | (least < m * (1.0 - OFF))
    sure = sure & ((m <= 0.0) | (reached & (tl.sum(near.to(tl.int32), 0) == 0)))
    left = left & (w >= m)
    # the draw, likeliest first if they were put in that order
    order = tl.where(((k > 0.5) | (p < 1.0))[:, None], before, earlier) & left[None, :]
    upto = tl.sum(tl.where(order, tl.broadcast_to(w[None, :], (MOST, MOST)), 0.0), 1)
    share = tl.sum(tl.where(left, w, 0.0), 0)
    at = u * share
    near = left & (tl.abs(upto + w - at) <= share * OFF)
    mine = left & (upto <= at) & (at < upto + w)
    sure = sure & (tl.sum(near.to(tl.int32), 0) == 0)
    # without filters, among all tokens
    all_ = (k < 0.5) & (p >= 1.0) & (m <= 0.0)
    sure = (all_ & _within(line, lane, u)) | (sure & (all_ == 0))
    greedy = scale == 0.0
    token = tl.max(tl.where(mine, ids, -1), 0)
    token = tl.where(all_, tl.load(line + 7), token)
    token = tl.where(greedy, tl.max(tl.where(first, ids, -1), 0), token)
    fine = (greedy | sure) & (token >= 0) & (count > 0) & (tl.load(line) == 0)
    tl.store(tokens + own, token, mask=lane == 0)
    tl.store(bad + own, 1 - fine.to(tl.int32), mask=lane == 0)


@triton.jit
def accept(ids, tokens, bad, stops, first, accepted, kept, ROWS: tl.constexpr, STOPS: tl.constexpr, PDL: tl.constexpr):
    """As `strata.ops.choice.gpu.accept`, but nothing of a conversation counts if a row that it comes to is bad.

    Args:
        kept: int32 [conversations], out: as `accepted`, -1 for such conversations.
    """
    release(PDL)
    conversation = tl.program_id(0)
    begin = tl.load(first + conversation)
    rows = tl.load(first + conversation + 1) - begin
    ends = tl.load(stops + conversation * STOPS + tl.arange(0, STOPS))
    wait(PDL)
    lost = tl.load(bad + begin)
    going = 1 - lost
    count = going
    for i in tl.static_range(1, ROWS):
        inside = i < rows
        chosen = tl.load(tokens + begin + i - 1, mask=inside, other=-1)
        same = (tl.load(ids + begin + i, mask=inside, other=-2) == chosen).to(tl.int32)
        ended = tl.max((ends == chosen).to(tl.int32), 0)
        going = going * same * (1 - ended)
        wrong = tl.load(bad + begin + i, mask=inside, other=0)
        lost += going * wrong
        going = going * (1 - wrong)
        count += going
    tl.store(accepted + conversation, tl.where(lost > 0, 0, count))
    tl.store(kept + conversation, tl.where(lost > 0, -1, count))
