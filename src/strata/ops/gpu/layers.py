"""What a layer computes on a GPU, every row by the kernels of windows: the part of `Ops` that knows no windows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from strata.model import weights
from strata.model.config import Mixer, ModelConfig
from strata.model.ops import NgramGated
from strata.ops import dependent
from strata.ops.gdn import gpu as gdn
from strata.ops.gpu.batch import GpuBatch
from strata.ops.gpu.branches import Branches
from strata.ops.gpu.pool import KINDS, Pool
from strata.ops.gpu.rows import ExpertRows, Rows, Streams, linear
from strata.ops.gpu.upload import DeviceGdn, DeviceMoe, DeviceQsa, DeviceTable
from strata.ops.gpu.visits import GpuRoute, Visits
from strata.ops.hyper_connection import gpu as hc
from strata.ops.hyper_connection.gates import gated_mean
from strata.ops.matvec.triton import MAX_ROWS, PlaneMatrix, quantise
from strata.ops.ngram import gpu as ngram
from strata.ops.ngram.host import HostTable
from strata.ops.qsa import gpu as qsa
from strata.ops.qsa.choose import BINS, choose
from strata.ops.rope.reference import cos_sin

if TYPE_CHECKING:
    from strata.ops.gpu.record import Recording

CELLS = 64
"""Selected cells a program of attention takes."""

SCORED = 64
"""Blocks a program of the indexer scores at a time."""

SCORED_LANES = 32
"""Numbers of their keys that it multiplies at a time."""

SCORERS = 512
"""Most programs that score one row."""

CHOOSERS = 32
"""Warps that choose."""

CHOOSING_REGISTERS = 48
"""Of a thread of theirs: three quarters of a multiprocessor's, so that they find room beside a product's program."""

TILE = 8
"""Blocks whose largest score is looked at first, where there are more than the budget times as many."""

BESIDE = True
"""Blocks are chosen on a branch beside the projections, none of which that needs; else behind them."""

COUNTED = True
"""Scores are counted by bins as they are computed, so that choosing begins with what is known of the counts."""

FIRST_LAYERS = 4
"""The first part of a recorded window ends before the mixer of this layer: the device is busy with it for as long as it
takes to hand over the rest."""

FLAT = {"num_warps": 4, "enable_fp_fusion": False}


class Layers:
    """A layer's operations; `strata.ops.gpu.ops.GpuOps` has those of windows.

    Args:
        config: dimensions.
        pool: memory of the conversations.
        device: where it is.
        graphs: launches may be recorded.
    """

    def __init__(self, config: ModelConfig, pool: Pool, device: torch.device, *, graphs: bool) -> None:
        self._c, self._pool, self._device = config, pool, device
        self._graphs = graphs and device.type == "cuda"
        self._recording: Recording | None = None
        self._mixers_met = 0
        self._branches = Branches(graphs=self._graphs)
        self._visits = Visits(config, device, self._branches)
        positions = torch.arange(min(config.context, pool.cells))[:, None].expand(-1, 3)
        self._turns = torch.stack(cos_sin(positions, config.rope)).to(device)
        self._launch = dependent.launch(device)
        self._number = _numbers(config.mixers)
        self._most_blocks = -(-config.context // config.qsa.ratio // 64) * 64
        self._tile = TILE
        while config.qsa.budget // config.qsa.ratio * self._tile**3 < self._most_blocks:
            self._tile *= 2
        # There is no product of bfloat16 on tensor cores before sm_80.
        able = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] > 7
        self._split = able and bool(pool.keys) and pool.keys[0].dtype in KINDS.values()
        self._hash: Sequence[Tensor] = ()
        if config.ple is not None:
            ple = config.ple
            self._hash = [
                torch.tensor(x, dtype=torch.int64, device=device) for x in (ple.multipliers, ple.sizes, ple.offsets)
            ]

    def linear(self, x: Rows, w: Any) -> Tensor:
        """See `Ops.linear`."""
        return linear(x, w)

    def streams(self, x: Tensor) -> Streams:
        """See `Ops.streams`."""
        c, count, block = self._c, len(x), min(1024, power(self._c.H))
        out = torch.empty((count, c.S * c.H), dtype=torch.float32, device=self._device)
        hc.spread[(-(-c.H // block), count)](x, out, H=c.H, S=c.S, BLOCK=block, num_warps=4, **self._launch)
        return Streams(out)

    def embed(self, batch: GpuBatch, table: DeviceTable) -> Tensor:
        """See `Ops.embed`."""
        rows = table.rows(batch.ids)
        self._branches.mark()
        return rows

    def hc_read(self, residual: Streams | Tensor, w: weights.HyperConnection) -> tuple[Rows, Tensor | None]:
        """See `Ops.hc_read`."""
        c = self._c
        streams = residual if isinstance(residual, Streams) else Streams(residual)
        count, width, pieces = len(streams.x), c.S * c.H, -(-c.H // hc.PIECE)
        xn, squares = Rows.empty(count, width, self._device), self._write(streams)
        hc.norm[(pieces, c.S, count)](
            streams.x, squares, w.norm, c.eps, *xn.targets, H=c.H, S=c.S, BLOCK=hc.PIECE, COUNT=pieces,
            ROOM=power(pieces), num_warps=hc.PIECE // 32, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        y, low = linear(xn, w.down), Rows.empty(count, c.r, self._device)
        shares, unused, block = None, y, power(c.r)
        if w.inject is not None:
            shares = torch.empty((count, c.S, self._parts), dtype=torch.float32, device=self._device)
        hc.low[(1 if shares is None else 1 + self._parts, count)](
            y, *low.targets, unused if w.inject is None else w.inject, xn.x, unused if shares is None else shares,
            R=c.r, S=c.S, BLOCK=block, WIDTH=width, PART=hc.PART, PARTS=self._parts,
            num_warps=block // 32, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        m = Rows.empty(count, c.H, self._device)
        up: Any = w.up
        if isinstance(up, PlaneMatrix) and count <= MAX_ROWS and low.quantised and m.quantised:
            gated_mean(up, low.quantised, xn.x, m.x, m.quantised)
            return m, shares
        hc.mix[(pieces, count)](
            linear(low, up), xn.x, *m.targets, H=c.H, S=c.S, BLOCK=hc.PIECE,
            num_warps=hc.PIECE // 32, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        return m, shares

    @property
    def _parts(self) -> int:
        """Parts of a write-back strength."""
        return -(-self._c.S * self._c.H // hc.PART)

    def _write(self, streams: Streams) -> Tensor:
        """Add what is due; sums of squares of the streams' pieces, float32 [T, S, pieces]."""
        c, x, out, shares = self._c, streams.x, streams.out, streams.shares
        due: tuple[Tensor, ...] = (x, x, x, x, x)
        if shares is not None and out is not None:
            due = (*out, shares) if isinstance(out, ExpertRows) else (out, x, x, x, shares)
        pieces = -(-c.H // hc.PIECE)
        squares = torch.empty((len(x), c.S, pieces), dtype=torch.float32, device=self._device)
        hc.write[(pieces, c.S, len(x))](
            x, *due, squares, H=c.H, S=c.S, BLOCK=hc.PIECE, PARTS=self._parts, WRITE=out is not None,
            TOPK=out.weights.shape[1] if isinstance(out, ExpertRows) else 0,
            num_warps=1, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        streams.out = streams.shares = None
        return squares

    def hc_write(self, residual: Streams, out: Tensor | ExpertRows, inject: Tensor | None) -> Streams:
        """See `Ops.hc_write`; the next read does it."""
        assert inject is not None, "only a final mixer lacks inject"
        residual.out, residual.shares = out, inject
        return residual

    def _count_mixer(self) -> None:
        """Cut a recording behind its first layers, if there are many."""
        self._mixers_met += 1
        if self._recording is not None and self._mixers_met == FIRST_LAYERS < len(self._number) // 2:
            self._branches.forget()
            self._recording.cut()

    def gdn_project(self, m: Rows, w: DeviceGdn) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
        """What is projected, u, raw, and what to call for z, raw."""
        self._count_mixer()
        z = self._branches.begin("z", partial(linear, m, w.z))  # computed beside the rule, too
        return m.x, linear(m, w.qkv), z

    def gdn_mix(
        self, x: tuple[Tensor, Tensor, Callable[[], Tensor]], batch: GpuBatch, number: int, w: DeviceGdn
    ) -> Rows:
        """See `Ops.gdn_mix`."""
        g, pool, layer = self._c.gdn, self._pool, self._number[number]
        m, u, z = x
        raw = torch.empty((batch.rows, g.nv * g.d), dtype=torch.float32, device=self._device)
        values = min(gdn.VALUES, g.d)
        strength = torch.empty((batch.rows, g.nv), dtype=torch.float32, device=self._device)
        gdn.window[(g.nv, batch.conversations, g.d // values)](
            u, m, w.gates, pool.tails, batch.slots, batch.first, w.conv, w.a, w.dt,
            pool.states, batch.places, batch.spares, batch.u[layer], batch.mixed[layer], batch.steps[layer],
            batch.decay[layer], strength, raw, layer,
            LAYERS=batch.u.shape[0], NK=g.nk, NV=g.nv, D=g.d, TAPS=g.conv, WIDTH=self._c.H, PART=gdn.PART,
            VALUES=values, **self._launch, num_warps=gdn.WARPS, enable_fp_fusion=False,
        )  # fmt: skip
        out = Rows.empty(batch.rows, g.nv * g.d, self._device)
        gdn.gate[(batch.rows, g.nv)](
            raw, z(), w.norm, self._c.eps, *out.targets, NV=g.nv, D=g.d,
            **self._launch, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
        return out

    def gdn_output(self, o: Rows, w: weights.Gdn) -> Tensor:
        """See `Ops.gdn_output`."""
        return self.linear(o, w.out)

    def qsa_project(self, m: Rows, batch: GpuBatch, w: weights.Qsa) -> Rows:  # noqa: ARG002  # see `qsa_attend`
        """What is projected: where it is known whose cells these are, the indexer goes ahead of the others."""
        self._count_mixer()
        return m

    def qsa_attend(self, x: Rows, batch: GpuBatch, number: int, w: weights.Qsa, *, sparse: bool) -> Rows:
        """See `Ops.qsa_attend`."""
        assert sparse, "attention is to what the indexer selects, in the draft head too"
        q, pool, layer = self._c.qsa, self._pool, self._number[number]
        count, device = batch.rows, self._device
        keys, values, where = pool.keys[layer], pool.values[layer], self._where(batch)
        heads = [partial(linear, x, y) for y in (w.q, w.k, w.v)]
        asks = [partial(linear, x, y) for y in ([w.asked] if isinstance(w, DeviceQsa) else [w.iq, w.ik])]
        if BESIDE:

            def choice() -> Tensor:
                return self._chosen([ask() for ask in asks], batch, layer, w)

            blocks = self._branches.begin("blocks", choice, urgent=True)
            qg, k, v = self._branches.beside(*heads)
        else:
            qg, k, v, *asked = self._branches.beside(*heads, *asks)
            blocks = partial(self._chosen, asked, batch, layer, w)

        def room(*shape: int) -> Tensor:
            return torch.empty((count, *shape), dtype=torch.float32, device=device)

        query = room(q.nh, q.hd)
        qsa.prepare[(count, q.nh + 2 * q.nkv)](
            qg, k, v, *self._turns, batch.positions, w.q_norm, w.k_norm, self._c.eps, *where, query, keys, values,
            NH=q.nh, NKV=q.nkv, HD=q.hd, HALF=self._turns.shape[-1], **self._launch, num_warps=1,
        )  # fmt: skip
        chosen = blocks()
        common = {"RATIO": q.ratio, "BUDGET": q.budget // q.ratio, **self._launch}
        parts = -(-(q.budget + q.ratio - 1) // CELLS)
        part, peak, weight = room(q.nh, parts, q.hd), room(q.nh, parts), room(q.nh, parts)
        qsa.attend[(count, q.nkv, parts)](
            query, keys, values, chosen, *where, part, peak, weight,
            NH=q.nh, NKV=q.nkv, HD=q.hd, HEADS=max(16, power(q.nh // q.nkv)), CELLS=CELLS, PARTS=parts,
            LANES=min(128, q.hd), SPLIT=self._split, **common, num_warps=8, num_stages=2,
        )  # fmt: skip
        out = Rows.empty(count, q.nh * q.hd, device)
        lanes = min(64, q.hd)
        qsa.merge[(count, q.nh, q.hd // lanes)](
            part, peak, weight, qg, batch.seen, *out.targets,
            NH=q.nh, HD=q.hd, CELLS=CELLS, PARTS=parts, FEW=min(8, power(parts)), ROOM=power(parts), LANES=lanes,
            **common, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
        return out

    def _where(self, batch: GpuBatch) -> tuple[Any, ...]:
        """`slots`, `seen`, `pages` and `page_count` of rows, as the kernels take them."""
        return batch.homes, batch.seen, self._pool.table, self._pool.most_pages

    def _chosen(self, asked: Sequence[Tensor], batch: GpuBatch, layer: int, w: weights.Qsa) -> Tensor:
        """The indexer: its own cells and blocks written, and the blocks that each row attends, int32 [T, budget].

        Its queries and keys come raw, as ``asked``: joined, or each.
        """
        q, pool, count, device = self._c.qsa, self._pool, batch.rows, self._device
        joined = len(asked) == 1
        iq, ik = (asked[0], asked[0][:, q.ih * q.id :]) if joined else asked
        raw, blocks, paged = pool.raw[layer], pool.blocks[layer], (pool.table, pool.most_pages)

        def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty((count, *shape), dtype=dtype, device=device)

        index, left = room(q.ih, q.id), batch.left
        bins = room(int(BINS.value), dtype=torch.int32)
        qsa.index[(count, q.ih + 1)](
            iq, ik, *self._turns, batch.positions, batch.starts, w.iq_norm, w.ik_norm, self._c.eps,
            batch.homes, batch.seen, batch.begins, *paged, index, raw, blocks, raw if left is None else left[layer],
            batch.seen if left is None else batch.first[1:], bins, IH=q.ih, ID=q.id, HALF=self._turns.shape[-1],
            RATIO=q.ratio, FIRST=0, JOINED=joined, WINDOW=left is None, COUNTED=COUNTED, **self._launch, num_warps=1,
        )  # fmt: skip
        budget = q.budget // q.ratio
        common = {"RATIO": q.ratio, "BUDGET": budget, "TILE": self._tile, "COUNTED": COUNTED, **self._launch}
        scores, peaks = room(self._most_blocks), room(self._most_blocks // self._tile)
        chosen = room(budget, dtype=torch.int32)
        qsa.score[(batch.conversations, min(SCORERS, -(-self._most_blocks // SCORED)), max(batch.counts))](
            index, blocks, batch.slots, batch.seen, batch.first, *paged, scores, peaks, bins, self._most_blocks,
            IH=q.ih, ID=q.id, BLOCK=SCORED, LANES=min(SCORED_LANES, q.id), **common, num_warps=4,
        )  # fmt: skip
        choose[(count,)](
            scores, peaks, bins, self._most_blocks, batch.seen, chosen, **common, num_warps=CHOOSERS,
            maxnreg=CHOOSING_REGISTERS,
        )  # fmt: skip
        return chosen

    def qsa_output(self, o: Rows, w: weights.Qsa) -> Tensor:
        """See `Ops.qsa_output`."""
        return self.linear(o, w.o)

    def route(self, m: Rows, w: DeviceMoe) -> GpuRoute:
        """See `Ops.route`."""
        return self._visits.route(m, w)

    def experts(self, m: Rows, route: GpuRoute, w: DeviceMoe) -> Tensor | ExpertRows:
        """See `Ops.experts`. The rows are weighed and added by the next read."""
        return self._visits.rows(m, route, w)

    def ngram_numbers(self, batch: GpuBatch) -> GpuBatch:
        """See `Ops.ngram_numbers`; computed and read by `ngram_gate`, on a branch of its own."""
        return batch

    def ngram_ask(self, numbers: GpuBatch, w: weights.Ple) -> GpuBatch:
        """See `Ops.ngram_ask`. The host needs the numbers of a table that is not here before anything else."""
        if isinstance(w.table, HostTable):
            table, batch, wanted = w.table, numbers, self._numbers(numbers)

            def ask() -> None:
                batch.asked = table.ask(wanted)

            self._on_host(ask)
        return numbers

    def ngram_rows(self, asked: GpuBatch, w: weights.Ple) -> GpuBatch:  # noqa: ARG002  # see `ngram_numbers`
        """See `Ops.ngram_rows`."""
        return asked

    def _on_host(self, action: Callable[[], None]) -> None:
        """Let the host do something here, in every repetition of what is being recorded, too."""
        if self._recording is None:
            action()
            return
        self._branches.forget()
        self._recording.host(action)

    def _numbers(self, batch: GpuBatch) -> Tensor:
        """Numbers of the table's rows: int64 [T, rows of a token]."""
        ple = self._c.ple
        assert ple is not None
        out = torch.empty((batch.rows, ple.rows_per_token), dtype=torch.int64, device=self._device)
        ngram.numbers[(batch.rows,)](
            batch.ids, self._pool.history, batch.slots, batch.first, batch.owner, *self._hash, out,
            N=ple.n, HEADS=ple.heads, EOS=ple.eos, num_warps=1, **self._launch,
        )  # fmt: skip
        return out

    def _embedding(self, batch: GpuBatch, w: weights.Ple) -> tuple[Tensor, Tensor]:
        """Keys [T, S*H] and values [T, H] of the rows' n-grams, raw."""
        assert isinstance(w.table, DeviceTable)
        x = w.table.rows(self._numbers(batch).reshape(-1)).reshape(batch.rows, -1)
        return self._projected(x, w)

    def _projected(self, x: Tensor, w: weights.Ple) -> tuple[Tensor, Tensor]:
        rows = Rows(x, quantise(x))
        return linear(rows, w.key), linear(rows, w.value)

    def _brought(self, batch: GpuBatch, table: HostTable) -> Tensor:
        """Rows that were asked for, float32 [T, ..]. They were under way while the layers before were computed."""
        ple = self._c.ple
        assert ple is not None
        x = torch.empty((batch.rows, ple.rows_per_token * ple.width), dtype=torch.float32, device=self._device)

        def take() -> None:
            x.copy_(table.answer(batch.asked).view_as(x))

        self._on_host(take)
        return x

    def ngram_gate(self, residual: Streams, e: GpuBatch, w: weights.Ple) -> NgramGated:
        """See `Ops.ngram_gate`. The embeddings depend on ids alone: their branch runs beside the layers before."""
        c, batch = self._c, e
        if isinstance(w.table, HostTable):
            brought = self._brought(batch, w.table)
            embedding = self._branches.begin("n-grams", partial(self._projected, brought, w))
        else:
            embedding = self._branches.begin("n-grams", partial(self._embedding, batch, w), early=True)
        residual.x = self._settled(residual)
        gated, normed = torch.empty_like(residual.x), torch.empty_like(residual.x)
        ngram.gate[(batch.rows, c.S)](
            *embedding(), residual.x, w.norm_key, w.norm_query, w.norm_conv, c.eps,
            gated, normed, H=c.H, S=c.S, BLOCK=power(c.H), num_warps=16, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        batch.normed = normed
        return NgramGated(gated, normed)

    def ngram_smooth(self, residual: Streams, x: NgramGated, batch: GpuBatch, w: weights.Ple) -> Streams:
        """See `Ops.ngram_smooth`."""
        c, ple = self._c, self._c.ple
        assert ple is not None
        width = c.S * c.H
        ngram.smooth[(batch.rows, -(-width // 256))](
            residual.x, x.gated, x.normed, self._pool.ngram_tails, batch.slots, batch.first, batch.owner, w.conv,
            WIDTH=width, TAPS=ple.conv, N=ple.n, BLOCK=256, **FLAT, **self._launch,
        )  # fmt: skip
        return residual

    def _settled(self, residual: Streams) -> Tensor:
        """The streams with nothing due."""
        if residual.out is not None:
            self._write(residual)
        return residual.x


def _numbers(mixers: Sequence[Mixer]) -> list[int]:
    """Each layer's number among those of its kind."""
    seen = dict.fromkeys(Mixer, 0)
    numbers = []
    for mixer in mixers:
        numbers.append(seen[mixer])
        seen[mixer] += 1
    return numbers


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
