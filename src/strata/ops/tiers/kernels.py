"""The device's half of a layer that misses experts: raise a message, bring experts, wait, take the host's rows.

Words that both sides look at are written with release and read with acquire, at the scope of the system:

- A message is raised by ``atomic_xchg(.., release, sys)``, one instruction of the one thread behind a barrier of the
  program, so that what its other threads stored is released too. It is a read and a write over the link, but nobody
  else writes that word.
- An answer is awaited by ``atomic_add(.., 0, acquire, sys)``. Triton compiles an addition of zero to a plain
  ``ld.acquire.sys``. That matters: without atomics across the link, which most machines lack, a real addition could
  write an old value over the host's new one. A test reads the machine's text for it, for every architecture.
- Nothing needs inline assembly but the clock. The interpreter has neither clock nor memory orders; there a wait counts
  its looks, and atomics are those of the processor.

The host's rows are read past the first cache (volatile), which no acquire of another processor of the card empties.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait

COUNTER, EXPECTED, HOST, FAULTED, LIMIT = (tl.constexpr(i) for i in range(5))
"""Words of the state: number of the last message; the one whose answer is awaited, or 0; experts that the host has in
this layer; a wait was in vain, so this window's rows are no numbers; nanoseconds (in the interpreter: looks) of
patience."""

STATE = 8

TIMES, ROWS_SEEN, RESIDENT, BY_LINK, BY_HOST, WAITED, WAITS, WHOLE = (tl.constexpr(i) for i in range(8))
"""Sums of a layer: times it was computed; rows; experts with a slot, over the link, from the host; nanoseconds
from messages to the host to its answers; messages; times that no expert was missing."""

SUMS = 8

BROKEN = tl.constexpr(1 << 62)
"""An answer from here on says that there will be none."""

TIMED = tl.constexpr(not triton.knobs.runtime.interpret)

_RUNG, _DONE, _GAVE_UP, _HEADER = tl.constexpr(0), tl.constexpr(128), tl.constexpr(384), tl.constexpr(512)


@triton.jit
def _ints(p):
    return p.to(tl.pointer_type(tl.int32))


@triton.jit
def _longs(p):
    return p.to(tl.pointer_type(tl.int64))


@triton.jit
def _floats(p):
    return p.to(tl.pointer_type(tl.float32))


@triton.jit
def _count(sums, which, number):
    tl.store(sums + which, tl.load(sums + which) + number)


@triton.jit(do_not_specialize=["nobody", "layer", "T"])
def publish(
    experts, counts, pairs, totals, q, s, box, state, split, link_experts, link_counts, link_pairs, link_totals, hosts,
    visits, sums, places, nobody, layer, T, WIDTH: tl.constexpr, M: tl.constexpr, AT_EXPERTS: tl.constexpr,
    AT_COUNTS: tl.constexpr, AT_NUMBERS: tl.constexpr, AT_CODES: tl.constexpr, AT_SCALES: tl.constexpr,
    VISITS: tl.constexpr, BLOCK: tl.constexpr, DISK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Share out what a layer misses, and tell the host of its part. Grid: (1,).

    The first of the missing experts are the host's, the last the link's; how many, `split` says. Whoever is nobody's in
    the table of places is on the disk, or may go there: always the host's. Without any for the host nothing is written
    to its memory.

    Args:
        experts, counts, pairs, totals, M: the window's plan (`strata.ops.experts.plan.plan_kernel`).
        q, s: the rows in eight bits, int32 [T, WIDTH / 4] and float32 [T, WIDTH / 32].
        box: uint8, memory of the host; see `strata.experts.misses.mailbox` for AT_*.
        state: int64 [STATE].
        split: int32, how many go over the link, by how many are missing.
        link_experts, link_counts, link_pairs, link_totals: out, a plan whose resident experts are the link's.
        hosts: int32 [M], out, only with DISK: which entries of the plan are the host's.
        visits: int32 [layers, 1 + 2 VISITS], out: how many experts were visited, which, and by how many rows.
        sums: int64 [layers, SUMS].
        places, nobody: int64 [E, 3], where experts are, and the number that says of one that the link may not; only
            with DISK.
        layer: its number.
        T: rows.
        DISK: RAM does not hold all experts.
    """
    release(PDL)
    wait(PDL)
    resident, missing = tl.load(totals), tl.load(totals + 1)
    link = tl.load(split + missing)
    i = tl.arange(0, M)
    lacks = i < missing
    entries = tl.where(lacks, M - 1 - i, 0)
    which = tl.load(experts + entries, mask=lacks, other=0)
    if DISK:
        able = lacks & (tl.load(places + 3 * which.to(tl.int64), mask=lacks, other=0) != nobody)
        rank, most = tl.cumsum(able.to(tl.int32), 0), tl.sum(able.to(tl.int32), 0)
        link = tl.minimum(link, most)
        linked = able & (rank > most - link)
        at_link = rank - 1 - (most - link)
        at_host = i - tl.maximum(rank - (most - link), 0)
    else:
        linked = lacks & (i >= missing - link)
        at_link, at_host = i - (missing - link), i
    hosted = lacks & (linked == 0)
    host = missing - link
    whole = tl.load(state + FAULTED) == 0
    eight = tl.arange(0, 8)

    # Who was visited.
    seen = visits + layer * (1 + 2 * VISITS)
    entry = tl.where(i < resident, i, M - 1 - (i - resident))
    there = i < resident + missing
    entry = tl.where(there, entry, 0)
    tl.store(seen, resident + missing)
    tl.store(seen + 1 + i, tl.load(experts + entry, mask=there, other=0), mask=there)
    tl.store(seen + 1 + VISITS + i, tl.load(counts + entry, mask=there, other=0), mask=there)
    mine = sums + layer * 8
    _count(mine, TIMES, 1)
    _count(mine, ROWS_SEEN, T)
    _count(mine, RESIDENT, resident)
    _count(mine, BY_LINK, link)
    _count(mine, BY_HOST, host)
    _count(mine, WHOLE, (missing == 0).to(tl.int32))

    # The link's part.
    number = tl.load(counts + entries, mask=lacks, other=0)
    numbers = tl.load(pairs + entries[:, None] * 8 + eight[None, :], mask=lacks[:, None], other=0)
    tl.store(link_totals, link)
    tl.store(link_experts + at_link, which, mask=linked)
    tl.store(link_counts + at_link, number, mask=linked)
    tl.store(link_pairs + at_link[:, None] * 8 + eight[None, :], numbers, mask=linked[:, None])

    # The host's part.
    ring = (host > 0) & whole
    tl.store(state + HOST, host)
    if DISK:
        tl.store(hosts + at_host, entries, mask=hosted)
    if ring:
        header = _ints(box + _HEADER)
        tl.store(header, layer)
        tl.store(header + 1, T)
        tl.store(header + 2, host)
        tl.store(header + 3, missing)
        tl.store(_ints(box + AT_EXPERTS) + at_host, which, mask=hosted)
        tl.store(_ints(box + AT_COUNTS) + at_host, number, mask=hosted)
        tl.store(_ints(box + AT_NUMBERS) + at_host[:, None] * 8 + eight[None, :], numbers, mask=hosted[:, None])
        word = tl.arange(0, BLOCK)
        for first in range(0, T * (WIDTH // 4), BLOCK):
            at = first + word
            inside = at < T * (WIDTH // 4)
            tl.store(_ints(box + AT_CODES) + at, tl.load(q + at, mask=inside, other=0), mask=inside)
        for first in range(0, T * (WIDTH // 32), BLOCK):
            at = first + word
            inside = at < T * (WIDTH // 32)
            tl.store(_floats(box + AT_SCALES) + at, tl.load(s + at, mask=inside, other=0.0), mask=inside)
        message = tl.load(state + COUNTER) + 1
        tl.store(state + COUNTER, message)
        tl.store(state + EXPECTED, message)
        tl.debug_barrier()
        tl.atomic_xchg(_longs(box + _RUNG), message, sem="release", scope="sys")
    else:
        tl.store(state + EXPECTED, 0)


@triton.jit
def _clock():
    """Nanoseconds, one number for the whole warp: threads that read other ones would leave the loop one by one."""
    lanes = tl.arange(0, 32)
    each = tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,r", [lanes], dtype=tl.int64, is_pure=False, pack=1
    )
    return tl.max(each, 0)


@triton.jit(do_not_specialize=["layer"])
def await_host(box, state, sums, layer, PDL: tl.constexpr):
    """Until the host has answered, if it was asked; at most as long as the state says. Grid: (1,).

    What follows is let go when the answer is there: its programs would else hold room while hits are computed.
    """
    wait(PDL)
    expected = tl.load(state + EXPECTED)
    if expected > 0:
        limit = tl.load(state + LIMIT)
        spent = limit - limit
        began = spent
        if TIMED:
            began = _clock()
        answered = tl.atomic_add(_longs(box + _DONE), 0, sem="acquire", scope="sys")
        while (answered < expected) & (spent <= limit):
            answered = tl.atomic_add(_longs(box + _DONE), 0, sem="acquire", scope="sys")
            if TIMED:
                spent = _clock() - began
            else:
                spent += 1
        release(PDL)
        mine = sums + layer * 8
        _count(mine, WAITED, spent)
        _count(mine, WAITS, 1)
        if (answered < expected) | (answered >= BROKEN):
            tl.store(state + FAULTED, 1)
        if answered < expected:
            tl.atomic_xchg(_longs(box + _GAVE_UP), expected, sem="release", scope="sys")


@triton.jit
def take(
    counts, pairs, hosts, box, state, y, WIDTH: tl.constexpr, M: tl.constexpr, AT_RESULTS: tl.constexpr,
    BLOCK: tl.constexpr, DISK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The host's rows to the places of their pairs; no numbers if they never came. Grid: (pieces of a row, experts).

    Args:
        counts, pairs, M: of the window's plan.
        hosts, DISK: as `publish` left them.
        box: uint8, memory of the host.
        state: int64 [STATE].
        y: float32 [pairs, WIDTH], out.
    """
    release(PDL)
    wait(PDL)
    which = tl.program_id(1)
    if which < tl.load(state + HOST):
        faulted = tl.load(state + FAULTED) != 0
        entry = tl.load(hosts + which) if DISK else M - 1 - which
        n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = n < WIDTH
        for k in range(tl.load(counts + entry)):
            pair = tl.load(pairs + entry * 8 + k)
            at = pair * WIDTH + n
            row = tl.load(_floats(box + AT_RESULTS) + at, mask=inside, other=0.0, volatile=True)
            tl.store(y + at, tl.where(faulted, float("nan"), row), mask=inside)


@triton.jit
def _units(place, CODE: tl.constexpr, RUNS: tl.constexpr, COUNT: tl.constexpr, STEPS: tl.constexpr, EACH: tl.constexpr):
    """How far units of a strand lie from its first: `COUNT` runs, whose steps are `EACH` numbers apart."""
    further = place * 0
    for r in tl.static_range(COUNT):
        further += ((place >> CODE[RUNS + 3 * r]) & CODE[RUNS + 3 * r + 1]) * CODE[STEPS + EACH * r]
    return further


@triton.jit
def _window(
    total, stage, block, place, there, BLOCK: tl.constexpr, CODE: tl.constexpr, AT: tl.constexpr, RUNS: tl.constexpr,
    RUN_COUNT: tl.constexpr,
):  # fmt: skip
    """Add what the bytes of one window contribute."""
    CHUNK: tl.constexpr = CODE[AT + 1]
    CHUNKS: tl.constexpr = CODE[AT + 2]
    TERMS: tl.constexpr = CODE[AT + 3]
    TERM_COUNT: tl.constexpr = CODE[AT + 4]
    STEPS: tl.constexpr = CODE[AT + 5]
    begin = stage.to(tl.pointer_type(tl.uint8 if CHUNK == 1 else tl.uint16 if CHUNK == 2 else tl.uint32))
    at = block * (BLOCK // CHUNK) + CODE[AT] + _units(place, CODE, RUNS, RUN_COUNT, STEPS, 1)
    word = tl.load(begin + at, mask=there, other=0).to(tl.uint32)
    for c in tl.static_range(1, CHUNKS):
        word |= tl.load(begin + at + c, mask=there, other=0).to(tl.uint32) << (8 * CHUNK * c)
    for t in tl.static_range(TERM_COUNT):
        if CODE[TERMS + 2 * t] < 0:
            total ^= (word << -CODE[TERMS + 2 * t]) & CODE[TERMS + 2 * t + 1]
        else:
            total ^= (word >> CODE[TERMS + 2 * t]) & CODE[TERMS + 2 * t + 1]
    return total


@triton.jit
def _strand(
    out, stage, first, CODE: tl.constexpr, AT: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
):  # fmt: skip
    """Some blocks' words of one plane that are formed alike; see `strata.ops.tiers.repack.code`."""
    START: tl.constexpr = CODE[AT]
    UNIT: tl.constexpr = CODE[AT + 1]
    UNITS: tl.constexpr = CODE[AT + 2]
    COUNT: tl.constexpr = CODE[AT + 4]
    RUNS: tl.constexpr = CODE[AT + 6]
    RUN_COUNT: tl.constexpr = CODE[AT + 7]
    WINDOWS: tl.constexpr = CODE[AT + 8]
    WINDOW_COUNT: tl.constexpr = CODE[AT + 9]
    i = tl.arange(0, TOGETHER * COUNT)
    block, place = first + i // COUNT, i % COUNT
    there = block < BLOCKS
    total = tl.full([TOGETHER * COUNT], CODE[AT + 5], tl.uint32)
    for w in tl.static_range(WINDOW_COUNT):
        total = _window(total, stage, block, place, there, BLOCK, CODE, WINDOWS + 6 * w, RUNS, RUN_COUNT)
    if COUNT == UNITS:
        unit = first * COUNT + i  # known to be neighbours, so a thread stores 16 bytes
    else:
        unit = block * UNITS + CODE[AT + 3] + _units(place, CODE, RUNS, RUN_COUNT, RUNS + 2, 3)
    to = (out + START).to(tl.pointer_type(tl.uint8 if UNIT == 1 else tl.uint16 if UNIT == 2 else tl.uint32))
    tl.store(to + unit, total.to(to.dtype.element_ty), mask=there)


@triton.jit
def _one(
    raw, out, stage, piece, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr, ROOM: tl.constexpr,
    CODE: tl.constexpr,
):  # fmt: skip
    """A piece of one matrix: its blocks to the stage, and from there to every plane.

    A thread takes 16 bytes at once and its neighbour the next, so a warp asks the link for whole lines. Triton gives a
    load as many bytes a thread as any other access of its shape in the kernel has: were there a plane formed byte by
    byte of just as many elements, it would be 64, and every instruction would ask for pieces of 16 lines.
    """
    first = piece * TOGETHER
    word = tl.arange(0, ROOM)
    at = first * BLOCK // 4 + word
    inside = (word < TOGETHER * BLOCK // 4) & (at < BLOCKS * BLOCK // 4)
    tl.store(_ints(stage) + at, tl.load(_ints(raw) + at, mask=inside, other=0), mask=inside)
    tl.debug_barrier()
    COUNT: tl.constexpr = CODE[0]
    for s in tl.static_range(COUNT):
        _strand(out, stage, first, CODE, 1 + 10 * s, BLOCKS, BLOCK, TOGETHER)


@triton.jit
def _piece(
    WHICH: tl.constexpr, base, places, expert, out, mine, piece, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr, ROOM: tl.constexpr, CODE: tl.constexpr,
):  # fmt: skip
    """A piece of an expert's gate (0), up (1) or down (2); behind one another on their way."""
    BEFORE: tl.constexpr = (WHICH > 0) * BLOCKS[0] * BLOCK[0] + (WHICH > 1) * BLOCKS[1] * BLOCK[1]
    raw = base + 16 * tl.load(places + 3 * expert + WHICH)
    _one(raw, out, mine + BEFORE, piece, BLOCKS[WHICH], BLOCK[WHICH], TOGETHER[WHICH], ROOM[WHICH], CODE)


@triton.jit
def bring(
    base, places, stage, stage_each, slots_base, stride, up_at, down_at, experts, slots, totals,
    GATE_PIECES: tl.constexpr, UP_PIECES: tl.constexpr, DOWN_PIECES: tl.constexpr, BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr, TOGETHER: tl.constexpr, ROOM: tl.constexpr, GATE: tl.constexpr, UP: tl.constexpr,
    DOWN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Experts from the file's blocks in RAM to planes in slots. Grid: any number of programs.

    They share out the pieces of all experts, so that what else is computed meanwhile finds room on every
    multiprocessor, and nothing to bring costs next to nothing.

    Args:
        base: uint8, any address of RAM that is a multiple of 16.
        places: int64 [E, 3], where each expert's gate, up and down begin, 16 bytes each from `base` on.
        stage: uint8, memory of the device for the blocks on their way, `stage_each` bytes an expert.
        slots_base, stride, up_at, down_at: where slots are and matrices in them.
        experts: int32, which.
        slots: int32, to which slots.
        totals: int32, how many.
        GATE_PIECES, UP_PIECES, DOWN_PIECES: of each matrix; gate and up, or down, may have none and are left alone.
        BLOCKS, BLOCK, TOGETHER: of gate, up, down: blocks of a matrix, bytes of a block, blocks of a piece.
        ROOM: of each: a power of two, at least the words of a piece.
        GATE, UP, DOWN: `strata.ops.tiers.repack.code` of each.
    """
    release(PDL)
    wait(PDL)
    FIRST: tl.constexpr = GATE_PIECES + UP_PIECES
    PIECES: tl.constexpr = FIRST + DOWN_PIECES
    for at in range(tl.program_id(0), tl.load(totals) * PIECES, tl.num_programs(0)):
        which, piece = at // PIECES, at % PIECES
        expert, slot = tl.load(experts + which).to(tl.int64), tl.load(slots + which).to(tl.int64)
        out, mine = slots_base + slot * stride, stage + which * stage_each
        if FIRST == 0:
            _piece(2, base, places, expert, out + down_at, mine, piece, BLOCKS, BLOCK, TOGETHER, ROOM, DOWN)
        elif piece < GATE_PIECES:
            _piece(0, base, places, expert, out, mine, piece, BLOCKS, BLOCK, TOGETHER, ROOM, GATE)
        elif DOWN_PIECES == 0 or piece < FIRST:
            _piece(
                1, base, places, expert, out + up_at, mine, piece - GATE_PIECES, BLOCKS, BLOCK, TOGETHER, ROOM, UP
            )  # fmt: skip
        else:
            _piece(
                2, base, places, expert, out + down_at, mine, piece - FIRST, BLOCKS, BLOCK, TOGETHER, ROOM, DOWN
            )  # fmt: skip
