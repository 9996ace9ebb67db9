"""`strata.model.ops.Ops` for a prompt pass on a GPU: one conversation's rows, many at a time, on tensor cores.

`strata.ops.gpu.ops.GpuOps` sends everything that comes with a `PromptBatch`, `PromptStreams` or `PromptRows` here. A
row's bytes depend on the row and on what is before it, not on the pass: sums over K run in one order whatever the tile,
chunks of the delta rule lie at absolute places. They are not the bytes a window gives: there activations have eight
bits, here eleven.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from strata.errors import RequestError
from strata.model import weights
from strata.model.config import ModelConfig
from strata.model.ops import Segment
from strata.ops.experts.slots import Slots
from strata.ops.gpu.pool import GpuState, Pool
from strata.ops.gpu.size import PART, ROOM, SCORES, USUAL, widest
from strata.ops.gpu.upload import DeviceGdn, DeviceMoe, DeviceTable
from strata.ops.matvec.triton import arch
from strata.ops.moe import gpu as moe
from strata.ops.ngram import gpu as ngram
from strata.ops.ngram.host import HostTable
from strata.ops.prompt import attention, delta, grouped, heads, prepare, product, streams
from strata.ops.prompt.batch import PromptBatch, PromptPass, PromptRows, PromptStreams
from strata.ops.prompt.matrices import OPTIONS, Matrices
from strata.ops.prompt.records import Records
from strata.ops.prompt.stream.streaming import Room, Streaming, streamed_rows
from strata.ops.prompt.tiles import attention_tile, low_tile, mean_tile
from strata.ops.qsa.choose import choose
from strata.ops.streams import stream

RECORDED = 512
"""Most rows of a pass that is captured as a graph: of longer ones the host's part takes no time that shows."""

CHUNK = int(delta.CHUNK.value)


class Prompt:
    """The operations of prompt passes, and the memory they share from layer to layer.

    Args:
        config: dimensions.
        pool: memory of conversations.
        device: where it is.
        turns: float32 [2, positions, half], cosines and sines.
        numbers: each layer's number among those of its kind.
        hashes: of the n-gram table: multipliers, sizes, offsets.
        tile: TILE of `strata.ops.qsa.choose.choose`.
        graphs: record short passes.

    Attributes:
        streaming: where experts come from that are not on the device; None where all are.
        most: rows of a pass.
        part: rows whose widest forms are there at a time, a multiple of 64.
    """

    def __init__(
        self, config: ModelConfig, pool: Pool, device: torch.device, turns: Tensor, numbers: Sequence[int],
        hashes: Sequence[Tensor], tile: int, *, graphs: bool = True,
    ) -> None:  # fmt: skip
        self._c, self._pool, self._device = config, pool, device
        self._turns, self._number, self._hash = turns, numbers, hashes
        self._matrices, self._others = Matrices(device), Matrices(device)  # the second for what runs beside
        self._arch = arch(device)
        self._interpreted = self._arch == 0
        self._split = not self._interpreted and bool(pool.keys) and pool.keys[0].dtype == torch.bfloat16
        self._tile = tile
        self._branch: torch.cuda.Stream | None = None
        self._graphs = graphs and self._arch > 0
        self._kept: dict[tuple[int, int], PromptBatch] = {}
        self._records = Records()
        self._room: Room | None = None  # of the layers' experts in the record that is being made
        self.streaming: Streaming | None = None
        self.most = USUAL
        self.part = PART
        self._longest = RECORDED  # pass for which there is room

    def begin(self, segments: Sequence[Segment]) -> PromptBatch:
        """A batch of one conversation's rows.

        Raises:
            RequestError: several conversations, or more than `most` rows.
        """
        if len(segments) != 1 or not 1 <= len(segments[0].ids) <= self.most:
            raise RequestError(
                f"a prompt pass has 1 to {self.most} rows of one conversation, "
                f"not {sum(len(s.ids) for s in segments)} of {len(segments)}"
            )
        (segment,), c = segments, self._c
        self._matrices.reserve(widest(c))
        assert isinstance(segment.memory, GpuState)
        count = len(segment.ids)
        complete = (segment.memory.length + count) // c.qsa.ratio
        blocks = 0 if complete <= c.qsa.budget // c.qsa.ratio else -(-complete // 64) * 64
        if self._graphs and count <= RECORDED:
            shape = max(16, _power(count)), max(64, _power(blocks)) if blocks else 0
            batch = self._kept.get(shape)
            if batch is None:
                batch = self._kept[shape] = PromptBatch.empty(*shape, c, self._pool, self._device)
        else:
            if count > self._longest:
                self._make_room(min(self.most, -(-count // ROOM) * ROOM))
            batch = PromptBatch.empty(count, blocks, c, self._pool, self._device)
        batch.fill(segment, c.qsa.ratio, self._pool)
        return batch

    def _make_room(self, rows: int) -> None:
        """A pass longer than those before has nothing of the pieces that they left with the allocator, which go back.

        Two pieces as large as its widest array, rows of all pairs, are what most others are then cut from. By a model
        of torch's allocator 2,048 rows then hold 0.41 to 0.51 GB, 0.34 of them in use; without up to 0.73.
        """
        self._longest = rows
        torch.cuda.empty_cache()
        pairs = rows * self._c.moe.topk
        both = [self._half(pairs, self._c.H) for _ in range(2)]
        del both

    def bring(self, streaming: Streaming) -> None:
        """Let what passes do not find come this way; what was recorded of them knows of another, and goes."""
        self.streaming, self._records = streaming, Records()

    def forget(self) -> None:
        """The memory of long passes goes: the next one makes room anew."""
        self._longest = RECORDED

    def layer(self, batch: PromptBatch, number: int) -> None:
        """See `Ops.layer`: the host runs ahead of the device."""

    def replay(
        self,
        batch: PromptBatch,
        body: Callable[[], PromptStreams],
        head: Any,  # noqa: ARG002  # of the last row only
    ) -> PromptStreams:
        """See `Ops.replay`. A short pass is recorded; what it leaves is copied before another record runs."""
        shape = batch.room, batch.blocks
        if self.streaming is not None:
            self.streaming.begin(batch.rows)
        if self._kept.get(shape) is not batch:
            return body()
        x = self._records.run(shape, lambda: self._recordable(batch, body))
        if x is None:
            return body()
        return PromptStreams(x[: len(batch.segment.ids)].clone() if batch.segment else x, batch.counts)

    def _recordable(self, batch: PromptBatch, body: Callable[[], PromptStreams]) -> Tensor:
        """What a body leaves, with memory for experts that all layers share.

        Each would else have its own, for the host's part of a record holds on to it.
        """
        if self.streaming is not None:
            rows = grouped.ordered_room(batch.room, self._c.H, self._device)
            self._room = Room(rows, self._half(batch.room * self._c.moe.topk, self._c.H))
        try:
            return self.settled(body())
        finally:
            self._room = None

    def passes(self, batch: PromptBatch, residual: PromptStreams) -> list[PromptPass]:
        """See `Ops.passes`."""
        x, segment = self.settled(residual), batch.segment
        assert segment is not None
        batch.segment = None  # the conversation may end before the batch does
        return [PromptPass(segment.ids, x[: len(segment.ids)], batch)]

    def commit(self, state: GpuState, done: PromptPass, n: int) -> None:
        """See `Ops.commit`.

        Raises:
            RequestError: not all rows: a prompt pass keeps only what is behind its last one.
        """
        batch = done.batch
        if n != len(done.ids):
            raise RequestError(f"a prompt pass of {len(done.ids)} rows is committed whole, not {n} of them")
        pool = self._pool
        pool.tails[state.slot].copy_(batch.tails)
        if self._c.ple is not None:
            pool.ngram_tails[state.slot].copy_(batch.ngram_tail[0])
            pool.history[state.slot].copy_(batch.history[0])
        pool.keep(state, batch.left, state.length + n)
        pool.give_back(state.place)
        state.home[0] = batch.spare_place
        state.length += n
        state.next_position += n

    def embed(self, batch: PromptBatch, table: DeviceTable) -> PromptStreams:
        """See `Ops.embed`; a single stream."""
        return PromptStreams(table.rows(batch.ids.long()), batch.counts)

    def streams(self, x: PromptStreams) -> PromptStreams:
        """See `Ops.streams`."""
        return PromptStreams(x.x.repeat(1, self._c.S), x.counts)

    def linear(self, x: PromptRows, w: Any) -> Tensor:
        """See `Ops.linear`."""
        return self._matrices.product(x, (w,))

    def hc_read(self, residual: PromptStreams, w: weights.HyperConnection) -> tuple[PromptRows, Tensor]:
        """See `Ops.hc_read`."""
        c, room, device = self._c, len(residual.x), self._device
        assert w.inject is not None, "the final mixer works on rows of windows"
        counts, due = residual.counts, residual.out is not None
        xn = self._half(room, c.S * c.H)
        streams.write_norm[(room, c.S)](
            residual.x, residual.out if due else residual.x, residual.strengths if due else residual.x, w.norm, c.eps,
            counts, xn, H=c.H, S=c.S, BLOCK=_power(c.H), WRITE=due, num_warps=4, **OPTIONS,
        )  # fmt: skip
        residual.out = residual.strengths = None
        narrow, strengths = self._half(room, c.r), torch.empty((room, c.S), dtype=torch.float32, device=device)
        t, width = low_tile(self._arch, room), c.S * c.H
        product.low_rank[(triton.cdiv(room, t.rows) * triton.cdiv(c.r + c.S, t.columns),)](
            xn, self._matrices.expand(w.down, w.inject), counts, narrow, strengths, c.r, width, S=c.S,
            EVEN=width % t.depth == 0, **t.constants(), **t.options(),
        )  # fmt: skip
        m = PromptRows(self._half(room, c.H), counts, self._half(room, c.H))
        t = mean_tile(self._arch, room)
        product.gated_mean[(triton.cdiv(room, t.rows) * triton.cdiv(c.H, t.columns),)](
            narrow, self._matrices.expand(w.up), xn, counts, m.half, m.rest, H=c.H, S=c.S, R=c.r,
            EVEN=c.r % t.depth == 0, **t.constants(), **t.options(),
        )  # fmt: skip
        return m, strengths

    def hc_write(self, residual: PromptStreams, out: Tensor, strengths: Tensor | None) -> PromptStreams:
        """See `Ops.hc_write`; the next read does it."""
        residual.out, residual.strengths = out, strengths
        return residual

    def gdn_project(self, m: PromptRows, w: DeviceGdn) -> tuple[PromptRows, list[Tensor]]:
        """The rows, and what is projected of them, raw, to be taken out: u, z and gates side by side.

        Of a long pass without z, whose product comes when the rule is done with u: they are as wide as the streams.
        """
        return m, [self._matrices.product(m, (w.qkv, w.gates) if self._late(m) else (w.qkv, w.z, w.gates))]

    def _late(self, m: PromptRows) -> bool:
        return len(m.half) > RECORDED

    def gdn_mix(
        self, projected: tuple[PromptRows, list[Tensor]], batch: PromptBatch, number: int, w: weights.Gdn
    ) -> PromptRows:
        """See `Ops.gdn_mix`."""
        g, pool, layer, room = self._c.gdn, self._pool, self._number[number], batch.room
        shape, layers = {"NK": g.nk, "NV": g.nv, "D": g.d}, pool.tails.shape[1]
        m, x = projected[0], projected[1].pop()
        width, counts, device = x.shape[1], batch.counts, self._device
        z: Tensor | None = None if self._late(m) else x[:, g.channels :]
        gates = x[:, width - 2 * g.nv :]
        chunks, rows = triton.cdiv(room, CHUNK) + 1, 64 if self._interpreted else 16
        mixed = self._half(room, g.channels)
        decay, strength = torch.empty((2, room, g.nv), dtype=torch.float32, device=device)
        heads.convolve[(triton.cdiv(room, rows), 2 * g.nk + g.nv)](
            x, width, gates, pool.tails, batch.slots, counts, w.conv, w.a, w.dt, mixed, decay, strength, layer,
            LAYERS=layers, TAPS=g.conv, ROWS=rows, **shape, num_warps=4, **OPTIONS,
        )  # fmt: skip
        heads.tail[(triton.cdiv(g.channels, 1024),)](
            x, width, pool.tails, batch.slots, counts, batch.tails, layer,
            LAYERS=layers, CHANNELS=g.channels, TAPS=g.conv, BLOCK=1024, num_warps=4,
        )  # fmt: skip
        del x, gates
        solved, seen = torch.empty((2, chunks, g.nv, CHUNK, CHUNK), dtype=torch.float16, device=device)
        since, until = torch.empty((2, chunks, g.nv, CHUNK), dtype=torch.float32, device=device)
        system = torch.empty((chunks, g.nv, CHUNK, CHUNK), dtype=torch.float32, device=device)
        delta.pairs[(chunks, g.nv)](
            mixed, decay, strength, batch.lengths, counts, system, solved, seen, since, until,
            **shape, num_warps=4, **OPTIONS,
        )  # fmt: skip
        del system
        out = torch.empty((room, g.nv * g.d), dtype=torch.float32, device=device)
        values = g.d if self._interpreted else min(32, g.d)
        delta.scan[(g.nv, g.d // values)](
            mixed, strength, solved, seen, since, until, pool.states, batch.places, batch.spares, batch.lengths, counts,
            out, layer, LAYERS=layers, VALUES=values, **shape, num_warps=4, num_stages=2, **OPTIONS,
        )  # fmt: skip
        del mixed, solved, seen, since, until
        if z is None:
            z = self.linear(m, w.z)
        gated = self._half(room, g.nv * g.d)
        heads.gate[(triton.cdiv(room, rows), g.nv)](
            out, z, z.stride(0), w.norm, self._c.eps, counts, gated,
            NV=g.nv, D=g.d, ROWS=rows, num_warps=4, **OPTIONS,
        )  # fmt: skip
        return PromptRows(gated, counts)

    def gdn_output(self, o: PromptRows, w: weights.Gdn) -> Tensor:
        """See `Ops.gdn_output`."""
        return self.linear(o, w.out)

    def qsa_project(
        self,
        m: PromptRows,
        batch: PromptBatch,  # noqa: ARG002  # rotated later
        w: weights.Qsa,
    ) -> tuple[PromptRows, tuple[Tensor, ...]]:
        """The rows, for queries and gates, and four projections, raw: k, v, indexer queries, indexer keys."""
        return m, tuple(self.linear(m, x) for x in (w.k, w.v, w.iq, w.ik))

    def qsa_attend(
        self, x: tuple[PromptRows, tuple[Tensor, ...]], batch: PromptBatch, number: int, w: weights.Qsa, *, sparse: bool
    ) -> PromptRows:
        """See `Ops.qsa_attend`; queries and gates are there for a part of the rows at a time."""
        assert sparse, "attention is to what the indexer selects, in the draft head too"
        (m, narrow), q = x, self._c.qsa
        out = self._half(batch.room, q.nh * q.hd)
        for rows, part in batch.parts(self.part):
            wide = self.linear(PromptRows(m.half[rows], part.counts), w.q)
            self._attend((wide, *(y[rows] for y in narrow)), part, number, w, out[rows])
        return PromptRows(out, batch.counts)

    def _attend(self, x: tuple[Tensor, ...], batch: PromptBatch, number: int, w: weights.Qsa, out: Tensor) -> None:
        """Attention of all rows of a batch, to their cells and those before them."""
        q, pool, layer, room, device = self._c.qsa, self._pool, self._number[number], batch.room, self._device
        keys, values, raw, blocks = (t[layer] for t in (pool.keys, pool.values, pool.raw, pool.blocks))
        table = (pool.table, pool.most_pages)
        query = torch.empty((room, q.nh, q.hd), dtype=torch.float32, device=device)
        index = torch.empty((room, q.ih, q.id), dtype=torch.float32, device=device)
        prepare.cells[(room, q.nh + 2 * q.nkv + q.ih + 1)](
            *x, *self._turns, batch.positions, batch.starts, w.q_norm, w.k_norm, w.iq_norm, w.ik_norm, self._c.eps,
            batch.homes, batch.seen, batch.owner, *table, query, index, keys, values, raw, blocks, batch.left[layer],
            batch.counts, NH=q.nh, NKV=q.nkv, HD=q.hd, IH=q.ih, ID=q.id, HALF=self._turns.shape[-1], RATIO=q.ratio,
            num_warps=1,
        )  # fmt: skip
        where = batch.slots, batch.lengths, batch.counts, *table
        shape = {"NH": q.nh, "NKV": q.nkv, "HD": q.hd, "RATIO": q.ratio, "BUDGET": q.budget // q.ratio}
        tile, warps = attention_tile(self._arch)
        attention.dense[(triton.cdiv(room * (q.nh // q.nkv), tile), q.nkv)](
            query, keys, values, x[0], *where, out, BM=tile, SPLIT=self._split, **shape, num_warps=warps, num_stages=1,
            **OPTIONS,
        )  # fmt: skip
        if batch.blocks:
            step = max(CHUNK, min(room, SCORES // batch.blocks))
            for begin in range(0, room, step):
                rows = min(step, room - begin)
                chosen = self._chosen(index, blocks, batch, begin, rows)
                attention.sparse[(rows, q.nkv)](
                    query, keys, values, x[0], chosen, *where, out, begin, HEADS=max(16, _power(q.nh // q.nkv)),
                    SPLIT=self._split, **shape, num_warps=4, num_stages=1, **OPTIONS,
                )  # fmt: skip

    def qsa_output(self, o: PromptRows, w: weights.Qsa) -> Tensor:
        """See `Ops.qsa_output`."""
        return self.linear(o, w.o)

    def _chosen(self, index: Tensor, blocks: Tensor, batch: PromptBatch, begin: int, rows: int) -> Tensor:
        """Blocks that rows from ``begin`` attend: int32 [rows, budget]."""
        q, device, most = self._c.qsa, self._device, batch.blocks
        budget, tall, wide = q.budget // q.ratio, 32, 64
        tile = self._tile
        scores = torch.empty((rows, most), dtype=torch.float32, device=device)
        peaks = torch.empty((rows, most // tile), dtype=torch.float32, device=device)
        attention.score[(triton.cdiv(rows, tall), triton.cdiv(most, wide))](
            index, blocks, batch.slots, batch.lengths, batch.counts, self._pool.table, self._pool.most_pages, scores,
            peaks, most, begin, IH=q.ih, ID=q.id, RATIO=q.ratio, BUDGET=budget, ROWS=tall, BLOCKS=wide, TILE=tile,
            num_warps=4, **OPTIONS,
        )  # fmt: skip
        chosen = torch.empty((rows, budget), dtype=torch.int32, device=device)
        choose[(rows,)](
            scores, peaks, chosen, most, batch.seen[begin:], chosen, RATIO=q.ratio, BUDGET=budget, TILE=tile,
            COUNTED=False, PDL=False, num_warps=8,
        )  # fmt: skip
        return chosen

    def route(self, m: PromptRows, w: DeviceMoe) -> tuple[Tensor, Tensor, Tensor]:
        """See `Ops.route`: experts, their weights, the weight of the shared expert."""
        room, topk = len(m.half), self._c.moe.topk
        chosen = torch.empty((room, topk), dtype=torch.int32, device=self._device)
        shares = torch.empty((room, topk), dtype=torch.float32, device=self._device)
        shared = torch.empty((room,), dtype=torch.float32, device=self._device)
        moe.route[(room,)](
            self._matrices.exact(m, w.choosing), chosen, shares, shared,
            E=self._c.moe.E, TOPK=topk, COUNT=_power(-(-self._c.moe.E // moe.LANES.value)), PDL=False, num_warps=1,
        )  # fmt: skip
        return chosen, shares, shared

    def experts(self, m: PromptRows, route: tuple[Tensor, Tensor, Tensor], w: DeviceMoe) -> Tensor:
        """See `Ops.experts`."""
        chosen, shares, shared = route
        if self.streaming is not None:
            number = self.streaming.number(w)
            if self._records.making is not None or self.streaming.lacks(number):  # who lacks some now may not later
                y, common = streamed_rows(
                    self.streaming, number, w.slots, m.half, m.counts, chosen, lambda: self._common(m, w.shared),
                    self._records.between, self._room,
                )  # fmt: skip
                return grouped.combined(y, shares, common, shared, m.counts)
        y, common = self._beside(
            lambda: grouped.rows_of(
                w.slots,
                grouped.ordered(m.half, m.counts),
                grouped.planned(chosen, m.counts, grouped.visits(chosen, m.counts, self._c.moe.E)),
            ),
            lambda: self._common(m, w.shared),
        )
        return grouped.combined(y, shares, common, shared, m.counts)

    def _common(self, m: PromptRows, slots: Slots) -> Tensor:
        """The shared expert's rows: float16 [room, H]. Every row visits it, so its matrices are written out."""
        gate, up, down = grouped.matrices(slots, 0)
        both = self._others.product(m, (gate, up))
        room, inner = len(m.half), slots.layout.inner
        h = self._half(room, inner)
        block = min(512, _power(inner))
        streams.swiglu[(triton.cdiv(inner, block), room)](both, m.counts, h, N=inner, BLOCK=block, num_warps=4)
        return self._others.product(PromptRows(h, m.counts), (down,), dtype=torch.float16)

    def _beside(self, first: Callable[[], Tensor], second: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Run two bodies that do not depend on one another; in a record the second on a branch of its own.

        What they read must outlive the call, which arguments of the caller do.
        """
        if self._interpreted or not torch.cuda.is_current_stream_capturing():
            return first(), second()
        main = torch.cuda.current_stream()
        if self._branch is None:
            self._branch = stream("beside")
        self._branch.wait_stream(main)
        with torch.cuda.stream(self._branch):
            other = second()
        one = first()
        main.wait_stream(self._branch)
        return one, other

    def ngram_numbers(self, batch: PromptBatch) -> tuple[PromptBatch, Tensor]:
        """See `Ops.ngram_numbers`: int64 [room, rows of a token], and the batch."""
        ple = self._c.ple
        assert ple is not None
        out = torch.empty((batch.room, ple.rows_per_token), dtype=torch.int64, device=self._device)
        ngram.numbers[(batch.room,)](
            batch.ids, self._pool.history, batch.slots, batch.first, batch.owner, *self._hash, out,
            N=ple.n, HEADS=ple.heads, EOS=ple.eos, PDL=False, num_warps=1,
        )  # fmt: skip
        return batch, out

    def ngram_ask(self, numbers: tuple[PromptBatch, Tensor], w: weights.Ple) -> tuple[PromptBatch, Any]:
        """See `Ops.ngram_ask`; a table on the device is asked when it is needed."""
        batch, wanted = numbers
        if not isinstance(w.table, HostTable):
            return numbers
        table, asked = w.table, Asking()
        self._records.between(lambda: asked.begin(table, wanted[: batch.rows]))
        return batch, asked

    def ngram_rows(self, asked: tuple[PromptBatch, Any], w: weights.Ple) -> PromptRows:
        """See `Ops.ngram_rows`."""
        batch, wanted = asked
        if isinstance(w.table, HostTable):
            x = self._answered(batch, wanted, w.table)
        else:
            assert isinstance(w.table, DeviceTable)
            x = w.table.rows(wanted.reshape(-1)).reshape(batch.room, -1)
        half = self._half(*x.shape)
        streams.halve[(triton.cdiv(x.numel(), 2048),)](x, half, x.numel(), BLOCK=2048, num_warps=4)
        return PromptRows(half, batch.counts)

    def _answered(self, batch: PromptBatch, asked: "Asking", table: HostTable) -> Tensor:
        """float32 [room, ..], n-grams of all tokens that there are."""
        if self._records.making is None:
            return asked.answer(table, batch.rows)
        assert self._c.ple is not None
        x = torch.zeros((batch.room, self._c.ple.rows_per_token * table.shape[1]), device=self._device)

        def arrive() -> None:
            x[: batch.rows].copy_(asked.answer(table, batch.rows))

        self._records.between(arrive)
        return x

    def ngram_gate(self, residual: PromptStreams, e: PromptRows, w: weights.Ple) -> PromptRows:  # noqa: ARG002  # later
        """See `Ops.ngram_gate`; `ngram_smooth` does it, for a part of the rows at a time."""
        return e

    def ngram_smooth(self, residual: PromptStreams, x: PromptRows, batch: PromptBatch, w: weights.Ple) -> PromptStreams:
        """See `Ops.ngram_smooth`; leaves the tail and the history behind the pass in the batch."""
        pool, slot = self._pool, batch.slots.long()
        batch.ngram_tail.copy_(pool.ngram_tails[slot])
        batch.history.copy_(pool.history[slot])
        streams_ = self.settled(residual)
        for rows, part in batch.parts(self.part):
            self._smooth(streams_[rows], PromptRows(x.half[rows], part.counts), part, w)
        return residual

    def _smooth(self, x: Tensor, e: PromptRows, batch: PromptBatch, w: weights.Ple) -> None:
        """Add n-grams to streams float32 [room, S*H], and move tail and history past the rows."""
        c, ple = self._c, self._c.ple
        assert ple is not None
        gated, normed = torch.empty_like(x), torch.empty_like(x)
        ngram.gate[(len(x), c.S)](
            self.linear(e, w.key), self.linear(e, w.value), x, w.norm_key, w.norm_query, w.norm_conv, c.eps,
            gated, normed, H=c.H, S=c.S, BLOCK=_power(c.H), PDL=False, num_warps=4, **OPTIONS,
        )  # fmt: skip
        width = c.S * c.H
        shape = {"WIDTH": width, "TAPS": ple.conv, "N": ple.n, "BLOCK": 1024, "num_warps": 4}
        here = batch.owner  # zeros: there is one tail
        ngram.smooth[(batch.room, triton.cdiv(width, 1024))](
            x, gated, normed, batch.ngram_tail, here, batch.first, here, w.conv, **shape, PDL=False, **OPTIONS,
        )  # fmt: skip
        ngram.shift[(triton.cdiv(width, 1024), 1)](
            normed, batch.ids, batch.ngram_tail, batch.history, here, batch.first, batch.counts, **shape
        )

    def settled(self, residual: PromptStreams) -> Tensor:
        """The streams with nothing due."""
        if residual.out is not None:
            c = self._c
            streams.write[(len(residual.x), c.S)](
                residual.x, residual.out, residual.strengths, residual.counts, H=c.H, S=c.S, BLOCK=_power(c.H),
                num_warps=4, **OPTIONS,
            )  # fmt: skip
            residual.out = residual.strengths = None
        return residual.x

    def _half(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float16, device=self._device)


class Asking:
    """Rows of a table on the host that a pass waits for; a record's are others each time."""

    def __init__(self) -> None:
        self._asked: Any = None

    def begin(self, table: HostTable, numbers: Tensor) -> None:
        """Ask for rows, int64 [T, rows of a token] on the device; waits for it."""
        self._asked = table.ask(numbers)

    def answer(self, table: HostTable, tokens: int) -> Tensor:
        """float32 [tokens, ..] on the device."""
        asked, self._asked = self._asked, None
        return table.answer(asked).reshape(tokens, -1)


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
