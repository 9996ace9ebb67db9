"""`strata.model.ops.Ops` on a GPU, every row by the kernels of windows, without the draft head (`Ops.rms`)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from strata.errors import RequestError
from strata.model import weights
from strata.model.config import Mixer, ModelConfig
from strata.model.ops import NgramGated, Pass, Segment
from strata.ops import dependent
from strata.ops.experts import triton as experts
from strata.ops.experts.slots import Slots
from strata.ops.experts.triton import Plan
from strata.ops.gdn import gpu as gdn
from strata.ops.gpu.batch import GpuBatch, GpuPass
from strata.ops.gpu.pool import GpuState, Pool
from strata.ops.gpu.rows import ExpertRows, Rows, Streams, linear, together
from strata.ops.gpu.upload import DeviceGdn, DeviceMoe, DeviceTable
from strata.ops.hyper_connection import gpu as hc
from strata.ops.hyper_connection.gates import gated_mean
from strata.ops.matvec.triton import MAX_ROWS, Activations, PlaneMatrix, quantise
from strata.ops.moe import gpu as moe
from strata.ops.ngram import gpu as ngram
from strata.ops.qsa import gpu as qsa
from strata.ops.rope.reference import cos_sin

CELLS = 64
"""Selected cells a program of attention takes."""

SCORED = 64
"""Blocks a program of the indexer scores."""

PASS_MOST = 4096
"""Most rows of a pass."""

FLAT = {"num_warps": 4, "enable_fp_fusion": False}


class GpuRoute(NamedTuple):
    """`strata.model.ops.Route`, the weight of the shared expert, float32 [T], and the plan of at most eight rows."""

    experts: Tensor
    weights: Tensor
    shared: Tensor
    plan: Plan | None


class GpuOps:
    """The operations, and the memory of the conversations they work on.

    Args:
        config: dimensions.
        pool: memory.
        device: where it is.
        graphs: capture windows.

    Attributes:
        recorded: captured windows and their streams, by the rows of each conversation.
    """

    def __init__(self, config: ModelConfig, pool: Pool, device: torch.device, *, graphs: bool = True) -> None:
        self._graphs = graphs and device.type == "cuda"
        self._windows: dict[tuple[int, ...], GpuBatch] = {}
        self.recorded: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._met: set[tuple[int, ...]] = set()
        self._branches: list[torch.cuda.Stream] = []
        self._plans: dict[int, Plan] = {}
        self._upto = torch.arange(PASS_MOST + 1, dtype=torch.int32, device=device)
        positions = torch.arange(min(config.context, pool.cells))[:, None].expand(-1, 3)
        self._turns = torch.stack(cos_sin(positions, config.rope)).to(device)
        self._c = config
        self._pool = pool
        self._device = device
        self._launch = dependent.launch(device)
        self._number = _numbers(config.mixers)
        self._most_blocks = -(-config.context // config.qsa.ratio)
        self._split = pool.keys[0].dtype == torch.bfloat16 and device.type == "cuda" if pool.keys else False
        if config.ple is not None:
            ple = config.ple
            self._hash = [torch.tensor(x, dtype=torch.int64, device=device) for x in (
                ple.multipliers, ple.sizes, ple.offsets)]  # fmt: skip

    def new_state(self, *, drafts: bool) -> GpuState:
        """See `Ops.new_state`.

        Raises:
            RequestError: every slot is taken, or drafts are asked for: the draft head does not run on a GPU yet.
        """
        if drafts:
            raise RequestError("the draft head does not run on the GPU yet; ask for no drafts")
        return self._pool.new_state()

    def begin(self, segments: Sequence[Segment], *, window: bool) -> GpuBatch:
        """See `Ops.begin`. Windows of one shape share their memory; the newest one's is valid."""
        counts = tuple(len(segment.ids) for segment in segments)
        batch = self._windows.get(counts) if window else None
        if batch is None:
            batch = GpuBatch.empty(counts, self._c, self._device)
            if window:
                self._windows[counts] = batch
        batch.fill(segments, self._c.qsa.ratio, self._pool)
        return batch

    def replay(self, batch: GpuBatch, body: Callable[[], Streams], head: Callable[[Streams], Tensor]) -> Streams:
        """See `Ops.replay`. A window is captured when its shape is met the second time."""
        if self._windows.get(batch.counts) is not batch:
            return Streams(self._run(batch, body))
        recorded = self.recorded.get(batch.counts)
        if recorded is None and (not self._graphs or batch.counts not in self._met):
            self._met.add(batch.counts)
            return Streams(self._whole(batch, body, head))
        if recorded is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                x = self._whole(batch, body, head)
            recorded = self.recorded[batch.counts] = (graph, x)
        recorded[0].replay()
        return Streams(recorded[1])

    def _run(self, batch: GpuBatch, body: Callable[[], Streams]) -> Tensor:
        batch.turns = torch.cat((self._turns[:, batch.positions.long()], self._turns[:, batch.starts.long()]))
        return self._settled(body())

    def _whole(self, batch: GpuBatch, body: Callable[[], Streams], head: Callable[[Streams], Tensor]) -> Tensor:
        x = self._run(batch, body)
        batch.logits = head(Streams(x))
        return x

    def passes(self, batch: GpuBatch, residual: Streams) -> list[Pass]:
        """See `Ops.passes`."""
        x = self._settled(residual)
        segments, batch.segments = batch.segments, ()  # the batch lives on; conversations may end
        logits = batch.logits
        return [
            GpuPass(s.ids, x[s.rows], batch, i, None if logits is None else logits[s.rows])
            for i, s in enumerate(segments)
        ]

    def commit(self, state: GpuState, done: GpuPass, n: int) -> None:
        """See `Ops.commit`."""
        c, batch, i = self._c, done.batch, done.index
        g, one = c.gdn, slice(i, i + 1)
        accepted = self._upto[n : n + 1]
        first, layers = batch.first[i : i + 2], batch.u.shape[0]
        if 0 < n < len(done.ids):
            values = min(gdn.VALUES, g.d)
            gdn.replay[(g.nv * g.d // values, 1, layers)](
                batch.mixed, batch.decay, batch.strength, self._pool.states, batch.places[one], batch.spares[one],
                first, accepted, batch.rows, LAYERS=layers, NK=g.nk, NV=g.nv, D=g.d, VALUES=values,
                num_warps=gdn.WARPS, enable_fp_fusion=False,
            )  # fmt: skip
        if n:
            gdn.shift[(-(-g.channels // 1024), 1, layers)](
                batch.u, self._pool.tails, batch.slots[one], first, accepted, batch.rows,
                LAYERS=layers, CHANNELS=g.channels, TAPS=g.conv, BLOCK=1024, num_warps=4,
            )  # fmt: skip
            if c.ple is not None:
                width = c.S * c.H
                ngram.shift[(-(-width // 1024), 1)](
                    batch.normed, batch.ids, self._pool.ngram_tails, self._pool.history, batch.slots[one], first,
                    accepted, WIDTH=width, TAPS=c.ple.conv, N=c.ple.n, BLOCK=1024, num_warps=4,
                )  # fmt: skip
            self._pool.give_back(state.place)
            state.home[0] = batch.spare_places[i]
        else:
            self._pool.give_back(batch.spare_places[i])
        state.length += n
        state.next_position += n

    def linear(self, x: Rows, w: Any) -> Tensor:
        """See `Ops.linear`."""
        return linear(x, w)

    def streams(self, x: Tensor) -> Streams:
        """See `Ops.streams`."""
        c, count, block = self._c, len(x), min(1024, _power(self._c.H))
        out = torch.empty((count, c.S * c.H), dtype=torch.float32, device=self._device)
        hc.spread[(-(-c.H // block), count)](x, out, H=c.H, S=c.S, BLOCK=block, num_warps=4, **self._launch)
        return Streams(out)

    def embed(self, batch: GpuBatch, table: DeviceTable) -> Tensor:
        """See `Ops.embed`."""
        return table.rows(batch.ids)

    def hc_read(self, residual: Streams | Tensor, w: weights.HyperConnection) -> tuple[Rows, Tensor | None]:
        """See `Ops.hc_read`."""
        c = self._c
        streams = residual if isinstance(residual, Streams) else Streams(residual)
        count, width, chunk = len(streams.x), c.S * c.H, hc.chunk(c.H)
        xn = Rows.empty(count, width, self._device)
        due, topk = self._due(streams)
        hc.write_norm[(c.S, count)](
            streams.x, *due, w.norm, c.eps, *xn.targets, H=c.H, S=c.S, CHUNK=chunk, COUNT=-(-c.H // chunk),
            PARTS=self._parts, WRITE=streams.out is not None, TOPK=topk,
            num_warps=chunk // 32, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        streams.out = streams.shares = None
        y, low = linear(xn, w.down), Rows.empty(count, c.r, self._device)
        shares, unused, block = None, y, _power(c.r)
        if w.inject is not None:
            shares = torch.empty((count, c.S, self._parts), dtype=torch.float32, device=self._device)
        hc.low[(1 if shares is None else 1 + self._parts, count)](
            y, *low.targets, unused if w.inject is None else w.inject, xn.x, unused if shares is None else shares,
            R=c.r, S=c.S, BLOCK=block, WIDTH=width, PART=hc.PART, PARTS=self._parts,
            num_warps=block // 32, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        m, part = Rows.empty(count, c.H, self._device), hc.chunk(c.H, 128)
        up: Any = w.up
        if isinstance(up, PlaneMatrix) and count <= MAX_ROWS and low.quantised and m.quantised:
            gated_mean(up, low.quantised, xn.x, m.x, m.quantised)
            return m, shares
        hc.mix[(-(-c.H // part), count)](
            linear(low, up), xn.x, *m.targets, H=c.H, S=c.S, BLOCK=part,
            num_warps=part // 32, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        return m, shares

    @property
    def _parts(self) -> int:
        """Parts of a write-back strength."""
        return -(-self._c.S * self._c.H // hc.PART)

    def _due(self, streams: Streams) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor], int]:
        """What the kernels that write take for what is due, and how many experts' rows it is made of, or none."""
        x, out, shares = streams.x, streams.out, streams.shares
        if out is None or shares is None:
            return (x, x, x, x, x), 0
        if isinstance(out, ExpertRows):
            return (*out, shares), out.weights.shape[1]
        return (out, x, x, x, shares), 0

    def hc_write(self, residual: Streams, out: Tensor | ExpertRows, inject: Tensor | None) -> Streams:
        """See `Ops.hc_write`; the next read does it."""
        assert inject is not None, "only a final mixer lacks inject"
        residual.out, residual.shares = out, inject
        return residual

    def gdn_project(self, m: Rows, w: DeviceGdn) -> tuple[Tensor, ...]:
        """The projections, raw: u, gates, z."""
        u, z, gates = together(m, (w.qkv, w.z, w.gates))
        return u, gates, z

    def gdn_mix(self, x: tuple[Tensor, ...], batch: GpuBatch, number: int, w: weights.Gdn) -> Rows:
        """See `Ops.gdn_mix`."""
        g, pool, layer = self._c.gdn, self._pool, self._number[number]
        heads, layers, values = {"NK": g.nk, "NV": g.nv, "D": g.d}, batch.u.shape[0], min(gdn.VALUES, g.d)
        u, gates, z = x
        batch.u[layer] = u
        mixed, decay, strength = batch.mixed[layer], batch.decay[layer], batch.strength[layer]
        gdn.prepare[(batch.rows, 2 * g.nk + g.nv)](
            u, gates, pool.tails, batch.slots, batch.first, batch.owner, w.conv, w.a, w.dt, mixed, decay, strength,
            layer, LAYERS=layers, TAPS=g.conv, **heads, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
        raw = torch.empty_like(z)
        gdn.window[(g.nv, batch.conversations, g.d // values)](
            mixed, decay, strength, pool.states, batch.places, batch.spares, batch.first, raw, layer,
            LAYERS=layers, VALUES=values, **heads, num_warps=gdn.WARPS, enable_fp_fusion=False,
        )  # fmt: skip
        out = Rows.empty(batch.rows, g.nv * g.d, self._device)
        gdn.gate[(batch.rows, g.nv)](
            raw, z, w.norm, self._c.eps, *out.targets, NV=g.nv, D=g.d, num_warps=1, enable_fp_fusion=False
        )
        return out

    def gdn_output(self, o: Rows, w: weights.Gdn) -> Tensor:
        """See `Ops.gdn_output`."""
        return linear(o, w.out)

    def qsa_project(self, m: Rows, batch: GpuBatch, w: weights.Qsa) -> tuple[Tensor, ...]:  # noqa: ARG002  # rotated later
        """The five projections, raw: query and gate, k, v, indexer queries, indexer keys."""
        return together(m, (w.q, w.k, w.v, w.iq, w.ik))

    def qsa_attend(self, x: tuple[Tensor, ...], batch: GpuBatch, number: int, w: weights.Qsa, *, sparse: bool) -> Rows:
        """See `Ops.qsa_attend`."""
        assert sparse, "dense attention is the draft head's"
        q, pool, layer = self._c.qsa, self._pool, self._number[number]
        qg, k, v, iq, ik = x
        count, device = batch.rows, self._device
        keys, values, raw, blocks = (t[layer] for t in (pool.keys, pool.values, pool.raw, pool.blocks))
        where = (batch.slots, batch.first, batch.owner, batch.lengths, pool.table, pool.most_pages)
        assert batch.turns is not None
        half = batch.turns.shape[-1]

        def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty((count, *shape), dtype=dtype, device=device)

        query, index = room(q.nh, q.hd), room(q.ih, q.id)
        qsa.prepare[(count, q.nh + 2 * q.nkv + q.ih + 1)](
            qg, k, v, iq, ik, *batch.turns, w.q_norm, w.k_norm, w.iq_norm, w.ik_norm, self._c.eps, *where,
            query, index, keys, values, raw, blocks,
            NH=q.nh, NKV=q.nkv, HD=q.hd, IH=q.ih, ID=q.id, HALF=half, RATIO=q.ratio, num_warps=1,
        )  # fmt: skip
        budget = q.budget // q.ratio
        common = {"RATIO": q.ratio, "BUDGET": budget}
        scores, chosen = room(self._most_blocks), room(budget, dtype=torch.int32)
        counts = room(dtype=torch.int32)
        qsa.score[(count, -(-self._most_blocks // SCORED))](
            index, blocks, *where, scores, self._most_blocks, IH=q.ih, ID=q.id, BLOCK=SCORED, **common, num_warps=4
        )
        several = _power(self._most_blocks)
        qsa.choose[(count,)](
            scores, self._most_blocks, batch.first, batch.owner, batch.lengths, chosen, counts,
            BLOCK=several, **common, num_warps=min(32, max(4, several // 512)),
        )  # fmt: skip
        parts = -(-(q.budget + q.ratio - 1) // CELLS)
        part, peak, weight = room(q.nh, parts, q.hd), room(q.nh, parts), room(q.nh, parts)
        qsa.attend[(count, q.nkv, parts)](
            query, keys, values, chosen, counts, *where, part, peak, weight,
            NH=q.nh, NKV=q.nkv, HD=q.hd, HEADS=max(16, _power(q.nh // q.nkv)), CELLS=CELLS, PARTS=parts,
            SPLIT=self._split, **common, num_warps=4,
        )  # fmt: skip
        out = Rows.empty(count, q.nh * q.hd, device)
        qsa.merge[(count, q.nh)](
            part, peak, weight, qg, counts, batch.first, batch.owner, batch.lengths, *out.targets,
            NH=q.nh, HD=q.hd, RATIO=q.ratio, CELLS=CELLS, PARTS=parts, ROOM=_power(parts),
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
        return out

    def qsa_output(self, o: Rows, w: weights.Qsa) -> Tensor:
        """See `Ops.qsa_output`."""
        return linear(o, w.o)

    def route(self, m: Rows, w: DeviceMoe) -> GpuRoute:
        """See `Ops.route`; the shared expert's weight is one more column. A window's plan is made with it."""
        logits = linear(m, w.choosing)
        count, topk, e = len(m.x), self._c.moe.topk, self._c.moe.E
        chosen = torch.empty((count, topk), dtype=torch.int32, device=self._device)
        shares = torch.empty((count, topk), dtype=torch.float32, device=self._device)
        shared = torch.empty((count,), dtype=torch.float32, device=self._device)
        common: dict[str, Any] = {"E": e, "TOPK": topk, "COUNT": _power(-(-e // moe.LANES.value)), **self._launch}
        if count > MAX_ROWS:
            moe.route[(count,)](logits, chosen, shares, shared, **common, num_warps=1)
            return GpuRoute(chosen, shares, shared, None)
        plan, rows = experts.empty_plan(count, topk, w.slots), _power(count)
        moe.route_and_plan[(1,)](
            logits, chosen, shares, shared, w.slots.slot_of,
            plan.experts, plan.slots, plan.counts, plan.pairs, plan.totals, w.slots.shared,
            T=count, ROWS=rows, PLACES=max(16, _power(topk)), M=len(plan.experts), **common, num_warps=rows,
        )  # fmt: skip
        return GpuRoute(chosen, shares, shared, plan)

    def experts(self, m: Rows, route: GpuRoute, w: DeviceMoe) -> Tensor | ExpertRows:
        """See `Ops.experts`. A window's rows are weighed and added by the next read.

        Of other passes eight rows at a time, for the plan holds no more.
        """
        a = m.quantised
        assert a is not None
        if route.plan is not None:
            y, shared = self._visited(w, a, route.plan)
            return ExpertRows(y, route.weights, shared, route.shared)
        out = torch.empty_like(m.x)
        for first in range(0, len(m.x), MAX_ROWS):
            part = slice(first, first + MAX_ROWS)
            x = Activations(a.q[part], a.s[part], a.z[part])
            y, shared = self._visited(w, x, experts.plan(route.experts[part].contiguous(), w.slots))
            experts.combine(y, route.weights[part].contiguous(), shared, route.shared[part], out[part])
        return out

    def _visited(self, w: DeviceMoe, x: Activations, plan: Plan) -> tuple[Tensor, Tensor]:
        """Rows of the chosen experts, and of the shared one: in the same launches where its size allows."""
        if experts.joinable(w.slots, w.shared):
            y = _rows_of(w.slots, x, plan, w.shared)
            return y, y[plan.rows * plan.topk :]
        y, shared = self._beside(
            partial(_rows_of, w.slots, x, plan), partial(_rows_of, w.shared, x, self._only(w.shared, x.rows))
        )
        return y, shared

    def _only(self, shared: Slots, rows: int) -> Plan:
        """The plan of so many rows that all visit the one expert there is; made once."""
        plan = self._plans.get(rows)
        if plan is None:
            plan = self._plans[rows] = experts.plan(
                torch.zeros((rows, 1), dtype=torch.int32, device=self._device), shared
            )
        return plan

    def _beside(self, *bodies: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        """Run bodies that do not depend on one another; inside a captured graph on branches of their own.

        What they read must outlive the call, which arguments of the caller do.
        """
        if not self._graphs or not torch.cuda.is_current_stream_capturing():
            return tuple(body() for body in bodies)
        main = torch.cuda.current_stream()
        results: list[Tensor] = [torch.empty(0)] * len(bodies)
        for i, body in enumerate(bodies[1:], 1):
            while len(self._branches) < i:
                self._branches.append(torch.cuda.Stream())
            branch = self._branches[i - 1]
            branch.wait_stream(main)
            with torch.cuda.stream(branch):
                results[i] = body()
        results[0] = bodies[0]()
        for branch in self._branches[: len(bodies) - 1]:
            main.wait_stream(branch)
        return tuple(results)

    def ngram_numbers(self, batch: GpuBatch) -> tuple[GpuBatch, Tensor]:
        """See `Ops.ngram_numbers`."""
        ple = self._c.ple
        assert ple is not None
        out = torch.empty((batch.rows, ple.rows_per_token), dtype=torch.int64, device=self._device)
        ngram.numbers[(batch.rows,)](
            batch.ids, self._pool.history, batch.slots, batch.first, batch.owner, *self._hash, out,
            N=ple.n, HEADS=ple.heads, EOS=ple.eos, num_warps=1, **self._launch,
        )  # fmt: skip
        return batch, out

    def ngram_rows(self, numbers: tuple[GpuBatch, Tensor], w: weights.Ple) -> tuple[GpuBatch, Rows]:
        """See `Ops.ngram_rows`."""
        batch, wanted = numbers
        assert isinstance(w.table, DeviceTable)
        x = w.table.rows(wanted.reshape(-1)).reshape(len(wanted), -1)
        return batch, Rows(x, quantise(x))

    def ngram_gate(self, residual: Streams, e: tuple[GpuBatch, Rows], w: weights.Ple) -> NgramGated:
        """See `Ops.ngram_gate`."""
        c, (batch, rows) = self._c, e
        residual.x = self._settled(residual)
        gated, normed = torch.empty_like(residual.x), torch.empty_like(residual.x)
        ngram.gate[(batch.rows, c.S)](
            linear(rows, w.key), linear(rows, w.value), residual.x, w.norm_key, w.norm_query, w.norm_conv, c.eps,
            gated, normed, H=c.H, S=c.S, BLOCK=_power(c.H), **FLAT, **self._launch,
        )  # fmt: skip
        batch.normed = normed
        return NgramGated(gated, normed)

    def ngram_smooth(self, residual: Streams, x: NgramGated, batch: GpuBatch, w: weights.Ple) -> Streams:
        """See `Ops.ngram_smooth`."""
        c, ple = self._c, self._c.ple
        assert ple is not None
        width = c.S * c.H
        ngram.smooth[(batch.rows, -(-width // 1024))](
            residual.x, x.gated, x.normed, self._pool.ngram_tails, batch.slots, batch.first, batch.owner, w.conv,
            WIDTH=width, TAPS=ple.conv, N=ple.n, BLOCK=1024, **FLAT, **self._launch,
        )  # fmt: skip
        return residual

    def _settled(self, residual: Streams) -> Tensor:
        """The streams with nothing due."""
        if residual.out is not None:
            c, chunk = self._c, hc.chunk(self._c.H)
            due, topk = self._due(residual)
            hc.write[(-(-c.H // chunk), c.S, len(residual.x))](
                residual.x, *due, H=c.H, S=c.S, CHUNK=chunk, PARTS=self._parts, TOPK=topk, **FLAT, **self._launch
            )
            residual.out = residual.shares = None
        return residual.x


def _rows_of(slots: Slots, x: Activations, plan: Plan, beside: Slots | None = None) -> Tensor:
    """Rows of all pairs of chosen experts, without weights: float32 [T * topk, H]; last those of one beside them."""
    return experts.down(slots, quantise(experts.gate_up(slots, x, plan, beside=beside)), plan, beside=beside)


def _numbers(mixers: Sequence[Mixer]) -> list[int]:
    """Each layer's number among those of its kind."""
    seen = dict.fromkeys(Mixer, 0)
    numbers = []
    for mixer in mixers:
        numbers.append(seen[mixer])
        seen[mixer] += 1
    return numbers


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
