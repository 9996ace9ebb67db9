"""`strata.model.ops.Ops` on a GPU, every row by the kernels of windows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import RequestError, TierError
from strata.model import weights
from strata.model.candidates import Candidates, Wish
from strata.model.config import Mixer, ModelConfig
from strata.model.decision import Decision, Drawn, Greedy, Undecided
from strata.model.ops import NgramGated, Pass, Segment
from strata.model.tally import Tally
from strata.ops import dependent
from strata.ops.gdn import gpu as gdn
from strata.ops.gpu.ahead import Following
from strata.ops.gpu.batch import GpuBatch, GpuPass
from strata.ops.gpu.branches import Branches
from strata.ops.gpu.choice import STOPS, TOP, Choice
from strata.ops.gpu.look import Look
from strata.ops.gpu.pool import KINDS, GpuState, Pool
from strata.ops.gpu.record import Recording
from strata.ops.gpu.rows import ExpertRows, Rows, Streams, linear
from strata.ops.gpu.upload import DeviceGdn, DeviceMoe, DeviceTable
from strata.ops.gpu.visits import GpuRoute, Visits
from strata.ops.hyper_connection import gpu as hc
from strata.ops.hyper_connection.gates import gated_mean
from strata.ops.matvec.triton import MAX_ROWS, PlaneMatrix, quantise
from strata.ops.ngram import gpu as ngram
from strata.ops.ngram.host import HostTable
from strata.ops.prompt.batch import PromptBatch, PromptPass
from strata.ops.prompt.ops import PASS_MOST, Prompt
from strata.ops.prompt.stream.streaming import Streaming
from strata.ops.qsa import gpu as qsa
from strata.ops.rope.reference import cos_sin
from strata.ops.tiers.tier import Tier

if TYPE_CHECKING:
    from strata.ops.gpu.draft import DraftHead

CELLS = 64
"""Selected cells a program of attention takes."""

SCORED = 64
"""Blocks a program of the indexer scores at a time."""

SCORED_ROWS = 8
"""Rows for which it does so together."""

SCORERS = 128
"""Most programs that score one conversation's rows."""

CHOOSERS = 8
"""Warps that choose."""

FEW = 8192
"""Scores that one program chooses among in registers; of more, the largest of tiles are looked at first."""

FIRST_LAYERS = 4
"""The first part of a recorded window ends before the mixer of this layer: the device is busy with it for as long as it
takes to hand over the rest."""

FLAT = {"num_warps": 4, "enable_fp_fusion": False}


class GpuOps:
    """The operations, and the memory of the conversations they work on.

    Args:
        config: dimensions.
        pool: memory.
        device: where it is.
        graphs: capture windows.
        tier: of the model's experts, if not all of them are on the device.

    Attributes:
        recorded: captured windows and their streams, by the rows of each conversation.
        drafts: the draft head; None until somebody sets it.
        pass_rows: see `Ops`.
    """

    form = "gpu 1"
    pictures = False  # rotations are looked up by one number
    same_forms = False  # prompts are read in chunks

    def __init__(
        self,
        config: ModelConfig,
        pool: Pool,
        device: torch.device,
        *,
        graphs: bool = True,
        tier: Tier | None = None,
    ) -> None:
        self._graphs = graphs and device.type == "cuda"
        self.tier = tier
        self.drafts: DraftHead | None = None
        self._windows: dict[tuple[int, ...], GpuBatch] = {}
        self.recorded: dict[tuple[int, ...], tuple[Recording, Tensor]] = {}
        self._recording: Recording | None = None
        self._following = Following(config.qsa.ratio)
        self._mixers_met = 0
        self._met: set[tuple[int, ...]] = set()
        self._branches = Branches(graphs=self._graphs)
        self._visits = Visits(config, device, self._branches)
        self._upto = torch.arange(PASS_MOST + 1, dtype=torch.int32, device=device)
        positions = torch.arange(min(config.context, pool.cells))[:, None].expand(-1, 3)
        self._turns = torch.stack(cos_sin(positions, config.rope)).to(device)
        self._c = config
        self._pool = pool
        self._device = device
        self._launch = dependent.launch(device)
        self._number = _numbers(config.mixers)
        self._most_blocks = -(-config.context // config.qsa.ratio // 64) * 64
        self._tile = max(8, _power(-(-self._most_blocks // FEW)))
        self._few = max(FEW, _power(config.qsa.budget // config.qsa.ratio) * self._tile)
        self._precision = (
            "tf32x3" if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] > 7 else "ieee"
        )
        self._banned = torch.zeros(config.V, dtype=torch.int8, device=device)
        self._banned_key = b""
        self._look: Look | None = None
        self._small: dict[tuple[tuple[int, ...], str, int, int], Recording] = {}
        self._met_small: set[tuple[tuple[int, ...], str, int, int]] = set()
        # There is no product of bfloat16 on tensor cores before sm_80.
        self._split = bool(pool.keys) and self._precision == "tf32x3" and pool.keys[0].dtype in KINDS.values()
        if config.ple is not None:
            ple = config.ple
            self._hash = [torch.tensor(x, dtype=torch.int64, device=device) for x in (
                ple.multipliers, ple.sizes, ple.offsets)]  # fmt: skip
        hashes = self._hash if config.ple is not None else ()
        tensor_cores = device.type == "cpu" or torch.cuda.get_device_capability(device)[0] >= 8
        self._prompt = None
        if tensor_cores:
            select = self._few, self._tile
            self._prompt = Prompt(config, pool, device, self._turns, self._number, hashes, select, graphs=self._graphs)
        self.pass_rows = PASS_MOST if tensor_cores and tier is None else 512

    def new_state(self, *, drafts: bool) -> GpuState:
        """See `Ops.new_state`.

        Raises:
            RequestError: drafts are asked for, but there is no draft head.
        """
        state = self._pool.new_state()
        if drafts:
            if self.drafts is None:
                raise RequestError("this network was put together without its draft head; ask for no drafts")
            state.mtp = self.drafts.new_state()
        return state

    def fits(self, needs: Sequence[tuple[GpuState | None, int]]) -> bool:
        """See `Ops.fits`."""
        return self._pool.fits(needs)

    def begin(self, segments: Sequence[Segment], *, window: bool) -> GpuBatch | PromptBatch:
        """See `Ops.begin`. Windows of one shape share their memory; the newest one's is valid.

        Prompt passes have kernels of their own, on tensor cores; a card without those reads prompts as windows.
        """
        if not window and self._reads_prompts:
            assert self._prompt is not None
            return self._prompt.begin(segments)
        ahead = self._following.window(segments if window else (), self._pool)
        if ahead is not None:
            return ahead
        if self.tier is not None:
            self.tier.begin()
        counts = tuple(len(segment.ids) for segment in segments)
        batch = self._windows.get(counts) if window else None
        if batch is None:
            batch = GpuBatch.empty(counts, self._c, self._device)
            if window:
                self._windows[counts] = batch
        batch.fill(segments, self._c.qsa.ratio, self._pool)
        return batch

    @property
    def _reads_prompts(self) -> bool:
        """Whether prompts have kernels of their own; where experts are missing, these have to come through a ring."""
        return self._prompt is not None and (self.tier is None or self._prompt.streaming is not None)

    def lacks(self, experts: Streaming | None, *, table: bool = False, rows: int = PASS_MOST) -> None:
        """Say what prompts do not find on the device.

        Args:
            experts: through which those come that have no slot.
            table: the n-gram table (`strata.ops.ngram.host`).
            rows: of the longest pass where experts come: each moves all of them (`strata.ops.prompt.stream.split`).
        """
        if self._prompt is None:
            return
        self._prompt.hosted = table
        if experts is not None:
            self._prompt.streaming = experts
            self._prompt.most = self.pass_rows = rows

    def over(self, batch: GpuBatch | PromptBatch) -> "GpuOps | Prompt":
        """See `Ops.over`."""
        if isinstance(batch, GpuBatch):
            return self
        assert self._prompt is not None, "it began the batch"
        return self._prompt

    def layer(self, batch: GpuBatch, number: int) -> None:
        """See `Ops.layer`: the host runs ahead of the device, and repeats records without being here."""

    def replay(self, batch: GpuBatch, body: Callable[[], Streams], head: Callable[[Streams], Tensor]) -> Streams:
        """See `Ops.replay`. A window is captured when its shape is met the second time."""
        if self._windows.get(batch.counts) is not batch:
            x = self._settled(body())
            if self.tier is not None:
                self.tier.end(window=False)
            return Streams(x)
        computed = self._following.computed()
        if computed is not None:
            return Streams(computed)
        if self.tier is not None:
            self.tier.window_begun()
        elif batch.counts == (1,):
            self._following.again = partial(self._window, batch, body, head)
        return Streams(self._window(batch, body, head))

    def _window(self, batch: GpuBatch, body: Callable[[], Streams], head: Callable[[Streams], Tensor]) -> Tensor:
        recorded = self.recorded.get(batch.counts)
        if recorded is None and (not self._graphs or batch.counts not in self._met):
            self._met.add(batch.counts)
            return self._whole(batch, body, head)
        if recorded is None:
            recording = self._recording = Recording()
            self._mixers_met = 0
            try:
                with recording.capture():
                    x = self._whole(batch, body, head)
            finally:
                self._recording = None
            recorded = self.recorded[batch.counts] = (recording, x)
        recorded[0].replay()
        return recorded[1]

    @property
    def graphs(self) -> bool:
        """Whether launches are recorded."""
        return self._graphs

    def settled(self, body: Callable[[], Streams]) -> Tensor:
        """What a body leaves, with nothing due."""
        return self._settled(body())

    def _whole(self, batch: GpuBatch, body: Callable[[], Streams], head: Callable[[Streams], Tensor]) -> Tensor:
        x = self._settled(body())
        batch.logits = head(Streams(x))
        if self.tier is not None:
            self.tier.end(window=True)
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

    def commit(self, state: GpuState, done: GpuPass | PromptPass, n: int) -> None:
        """See `Ops.commit`."""
        if isinstance(done, PromptPass):
            assert self._prompt is not None, "it computed the pass"
            self._prompt.commit(state, done, n)
            return
        batch, i = done.batch, done.index
        if n:
            body = partial(self._move, batch, slice(i, i + 1), self._upto[n : n + 1], partly=n < len(done.ids))
            if self._windows.get(batch.counts) is batch:
                self._repeat((batch.counts, "commit", i, n), body)
            else:
                body()
        self._moved(state, batch.spare_places[i], n)

    def decide(self, done: Sequence[tuple[GpuState, GpuPass]], rules: Sequence[Greedy]) -> list[Decision] | None:
        """See `Ops.decide`: for windows whose conversations ban the same ids and have few stop tokens."""
        batch = done[0][1].batch
        banned = rules[0].key
        if (
            batch.logits is None
            or [one.index for _, one in done] != list(range(batch.conversations))
            or any(one.batch is not batch for _, one in done)
            or any(rule.key != banned or len(rule.stop_ids) > STOPS for rule in rules)
        ):
            return None
        self._ban(rules[0].banned)
        if batch.choice is None:
            batch.choice = Choice(batch.rows, batch.conversations, self._c.V, self._device)
        choice, top = batch.choice, TOP if any(rule.top for rule in rules) else 1
        choice.prepare(rules)
        self._repeat((batch.counts, "decide", 0, top), partial(self._decide, batch, choice, top))
        choice.launched()
        spares = batch.spare_places
        self._following.launch(done, rules)
        decisions = choice.read([one.ids for _, one in done], rules, top)
        try:
            self.check()
        except TierError:
            for state, one in done:
                self._moved(state, spares[one.index], 0)
            raise
        for (state, one), decision in zip(done, decisions, strict=True):
            self._moved(state, spares[one.index], len(decision.ids))
        self._following.chosen(done[0], decisions[0])
        return decisions

    def check(self) -> None:
        """See `Ops.check`."""
        if self.tier is not None:
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
            self.tier.settled()

    def met(self) -> Tally | None:
        """See `Ops.met`."""
        return None if self.tier is None else self.tier.last

    def _decide(self, batch: GpuBatch, choice: Choice, top: int) -> None:
        assert batch.logits is not None
        choice.launch(batch.logits, self._banned, batch.ids, batch.first, top, self._launch)
        self._move(batch, slice(0, batch.conversations), choice.accepted, partly=max(batch.counts) > 1)

    looks = True

    def look(self, done: Sequence[GpuPass], wishes: Sequence[Wish]) -> list[list[Candidates]] | None:
        """See `Ops.look`: for windows whose conversations ban the same ids."""
        found, batch = self._looking(done, wishes), done[0].batch
        if found is None or batch.logits is None:
            return None
        kind, room = found.prepare(wishes)
        body = partial(found.launch, batch.logits, self._banned, kind, room, self._launch)
        self._repeat((batch.counts, "look", kind, room), body)
        seen = found.read(wishes, kind)
        self.check()
        return seen

    def draw(
        self, done: Sequence[tuple[GpuState, GpuPass]], rules: Sequence[Drawn]
    ) -> list[Decision | Undecided] | None:
        """See `Ops.draw`: for windows whose conversations ban the same ids and have few stop tokens."""
        found, batch = self._looking([one for _, one in done], [rule.wish for rule in rules]), done[0][1].batch
        if found is None or any(len(rule.stop_ids) > STOPS for rule in rules):
            return None
        kind = found.prepare_draw(rules)
        self._repeat((batch.counts, "draw", kind, 0), partial(self._draw, batch, found, kind))
        outcomes = found.read_draw(rules, kind)
        self.check()
        for (state, one), outcome in zip(done, outcomes, strict=True):
            if isinstance(outcome, Decision):
                self._moved(state, batch.spare_places[one.index], len(outcome.ids))
        return outcomes

    def _draw(self, batch: GpuBatch, found: Look, kind: int) -> None:
        assert batch.logits is not None
        found.launch(batch.logits, self._banned, kind, 0, self._launch)
        found.launch_draw(batch.ids, batch.first, self._launch)
        accepted = found.accepted[: batch.conversations]
        self._move(batch, slice(0, batch.conversations), accepted, partly=max(batch.counts) > 1)

    def _looking(self, done: Sequence[GpuPass], wishes: Sequence[Wish]) -> Look | None:
        """What looks at a whole window; None where its conversations do not ban the same ids."""
        batch, banned = done[0].batch, wishes[0].banned
        if (
            batch.logits is None
            or [one.index for one in done] != list(range(batch.conversations))
            or any(one.batch is not batch for one in done)
            or any(wish.banned.tobytes() != banned.tobytes() for wish in wishes)
        ):
            return None
        self._ban(banned)
        if self._look is None:
            self._look = Look(self._c.V, self._device)
        return self._look

    def _ban(self, banned: NDArray[np.int64]) -> None:
        """Ids that are no tokens, where kernels look for them."""
        key = banned.tobytes()
        if key != self._banned_key:
            self._banned.zero_()
            self._banned[torch.from_numpy(banned).to(self._device)] = 1
            self._banned_key = key

    def _repeat(self, key: tuple[tuple[int, ...], str, int, int], body: Callable[[], None]) -> None:
        """Run a body of launches on a window's memory; recorded when the window is, and it is met again."""
        graph = self._small.get(key)
        if graph is None:
            if key not in self._met_small or key[0] not in self.recorded:
                self._met_small.add(key)
                body()
                return
            graph = self._small[key] = Recording()
            with graph.capture():
                body()
        graph.replay()

    def _move(self, batch: GpuBatch, part: slice, accepted: Tensor, *, partly: bool) -> None:
        """Move what some conversations remember past their accepted rows, int32, in one launch of each kind."""
        c, g, pool = self._c, self._c.gdn, self._pool
        count, layers = accepted.shape[0], batch.u.shape[0]
        first, slots = batch.first[part.start : part.stop + 1], batch.slots[part]
        if partly and layers:
            values = min(gdn.VALUES, g.d)
            gdn.replay[(g.nv * g.d // values, count, layers)](
                batch.mixed, batch.steps, batch.decay, pool.states, batch.places[part], batch.spares[part],
                first, accepted, batch.rows, LAYERS=layers, NK=g.nk, NV=g.nv, D=g.d, VALUES=values,
                **self._launch, num_warps=4, enable_fp_fusion=False,
            )  # fmt: skip
        if layers:
            gdn.shift[(-(-g.channels // 1024), count, layers)](
                batch.u, pool.tails, slots, first, accepted, batch.rows,
                LAYERS=layers, CHANNELS=g.channels, TAPS=g.conv, BLOCK=1024, **self._launch, num_warps=4,
            )  # fmt: skip
        if c.ple is not None:
            width = c.S * c.H
            ngram.shift[(-(-width // 1024), count)](
                batch.normed, batch.ids, pool.ngram_tails, pool.history, slots, first, accepted,
                WIDTH=width, TAPS=c.ple.conv, N=c.ple.n, BLOCK=1024, num_warps=4,
            )  # fmt: skip

    def _moved(self, state: GpuState, spare: int, n: int) -> None:
        """The host's part of accepting n rows, whose recurrent states are in a spare place."""
        if n:
            self._pool.give_back(state.place)
            state.home[0] = spare
        else:
            self._pool.give_back(spare)
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
            ROOM=_power(pieces), num_warps=hc.PIECE // 32, enable_fp_fusion=False, **self._launch,
        )  # fmt: skip
        y, low = linear(xn, w.down), Rows.empty(count, c.r, self._device)
        shares, unused, block = None, y, _power(c.r)
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
            batch.decay[layer], strength, raw, layer, 0 if self._launch["PDL"] else 1,
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

    def qsa_project(self, m: Rows, batch: GpuBatch, w: weights.Qsa) -> tuple[Tensor, ...]:  # noqa: ARG002  # rotated later
        """The five projections, raw: query and gate, k, v, indexer queries, indexer keys."""
        self._count_mixer()
        return self._branches.beside(*(partial(linear, m, x) for x in (w.q, w.k, w.v, w.iq, w.ik)))

    def qsa_attend(self, x: tuple[Tensor, ...], batch: GpuBatch, number: int, w: weights.Qsa, *, sparse: bool) -> Rows:
        """See `Ops.qsa_attend`."""
        assert sparse, "attention is to what the indexer selects, in the draft head too"
        q, pool, layer = self._c.qsa, self._pool, self._number[number]
        qg, k, v, iq, ik = x
        count, device = batch.rows, self._device
        keys, values, raw, blocks = (t[layer] for t in (pool.keys, pool.values, pool.raw, pool.blocks))
        rows_, paged = (batch.homes, batch.seen), (pool.table, pool.most_pages)
        half = self._turns.shape[-1]

        def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty((count, *shape), dtype=dtype, device=device)

        query, index = room(q.nh, q.hd), room(q.ih, q.id)
        qsa.prepare[(count, q.nh + 2 * q.nkv + q.ih + 1)](
            qg, k, v, iq, ik, *self._turns, batch.positions, batch.starts, w.q_norm, w.k_norm, w.iq_norm, w.ik_norm,
            self._c.eps, *rows_, batch.begins, *paged, query, index, keys, values, raw, blocks,
            NH=q.nh, NKV=q.nkv, HD=q.hd, IH=q.ih, ID=q.id, HALF=half, RATIO=q.ratio, **self._launch, num_warps=1,
        )  # fmt: skip
        budget = q.budget // q.ratio
        common = {"RATIO": q.ratio, "BUDGET": budget, **self._launch}
        turn = 0 if self._launch["PDL"] else 1
        select = {"FEW": self._few, "TILE": self._tile}
        scores, peaks = room(self._most_blocks), room(self._most_blocks // self._tile)
        chosen = room(budget, dtype=torch.int32)
        groups = -(-max(batch.counts) // SCORED_ROWS)
        qsa.score[(batch.conversations, min(SCORERS, -(-self._most_blocks // SCORED)), groups)](
            index, blocks, batch.slots, batch.seen, batch.first, *paged, scores, peaks, self._most_blocks,
            turn, IH=q.ih, ID=q.id, BLOCK=SCORED, LANES=min(32, q.id), ROWS=SCORED_ROWS, PRECISION=self._precision,
            **common, **select, num_warps=4,
        )  # fmt: skip
        qsa.choose[(count,)](
            scores, peaks, self._most_blocks, batch.seen, chosen, turn, **common, **select, num_warps=CHOOSERS
        )
        parts = -(-(q.budget + q.ratio - 1) // CELLS)
        part, peak, weight = room(q.nh, parts, q.hd), room(q.nh, parts), room(q.nh, parts)
        qsa.attend[(count, q.nkv, parts)](
            query, keys, values, chosen, *rows_, *paged, part, peak, weight, turn,
            NH=q.nh, NKV=q.nkv, HD=q.hd, HEADS=max(16, _power(q.nh // q.nkv)), CELLS=CELLS, PARTS=parts,
            LANES=min(64, q.hd), SPLIT=self._split, **common, num_warps=8, num_stages=3,
        )  # fmt: skip
        out = Rows.empty(count, q.nh * q.hd, device)
        lanes = min(64, q.hd)
        qsa.merge[(count, q.nh, q.hd // lanes)](
            part, peak, weight, qg, batch.seen, *out.targets, turn,
            NH=q.nh, HD=q.hd, CELLS=CELLS, PARTS=parts, FEW=min(8, _power(parts)), ROOM=_power(parts), LANES=lanes,
            **common, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
        return out

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
            gated, normed, H=c.H, S=c.S, BLOCK=_power(c.H), num_warps=16, enable_fp_fusion=False, **self._launch,
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


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
