"""`strata.model.ops.Ops` on a GPU, every row by the kernels of windows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import RequestError, TierError
from strata.model.candidates import Candidates, Wish
from strata.model.config import ModelConfig
from strata.model.decision import Decision, Drawn, Greedy, Undecided
from strata.model.ops import WINDOW_ROWS, Pass, Segment
from strata.model.tally import Tally
from strata.ops.gdn import gpu as gdn
from strata.ops.gpu.ahead import Following
from strata.ops.gpu.batch import GpuBatch, GpuPass, Kept
from strata.ops.gpu.choice import STOPS, TOP, Choice
from strata.ops.gpu.layers import Layers
from strata.ops.gpu.look import Look
from strata.ops.gpu.pool import GpuState, Pool
from strata.ops.gpu.record import Recording
from strata.ops.gpu.rows import Streams
from strata.ops.gpu.size import USUAL
from strata.ops.ngram import gpu as ngram
from strata.ops.prompt.batch import PromptBatch, PromptPass
from strata.ops.prompt.ops import Prompt
from strata.ops.prompt.stream.streaming import Streaming
from strata.ops.tiers.loan import Loan
from strata.ops.tiers.tier import Tier

if TYPE_CHECKING:
    from strata.ops.gpu.draft import DraftHead


class GpuOps(Layers):
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

    form = "gpu 2"
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
        super().__init__(config, pool, device, graphs=graphs)
        self.tier = tier
        self.drafts: DraftHead | None = None
        self._loan: Loan | None = None
        self._windows: dict[tuple[int, ...], GpuBatch] = {}
        self._kept: Kept | None = None
        self.recorded: dict[tuple[int, ...], tuple[Recording, Tensor]] = {}
        self._following = Following(config.qsa.ratio)
        self._met: set[tuple[int, ...]] = set()
        self._upto = torch.arange(USUAL + 1, dtype=torch.int32, device=device)
        self._banned = torch.zeros(config.V, dtype=torch.int8, device=device)
        self._banned_key = b""
        self._look: Look | None = None
        self._small: dict[tuple[tuple[int, ...], str, int, int], Recording] = {}
        self._met_small: set[tuple[tuple[int, ...], str, int, int]] = set()
        tensor_cores = device.type == "cpu" or torch.cuda.get_device_capability(device)[0] >= 8
        self._prompt = None
        if tensor_cores:
            self._prompt = Prompt(
                config, pool, device, self._turns, self._number, self._hash, self._tile, graphs=self._graphs
            )
        self.pass_rows = USUAL if tensor_cores and tier is None else 512

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
        """See `Ops.begin`. Windows share their memory, whatever their shape; the newest one's is valid.

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
            kept = None
            if window:
                kept = self._kept = self._kept or Kept(WINDOW_ROWS, self._c, self._device)
            batch = GpuBatch.empty(counts, self._c, self._device, kept)
            if window:
                self._windows[counts] = batch
        batch.fill(segments, self._c.qsa.ratio, self._pool)
        return batch

    @property
    def _reads_prompts(self) -> bool:
        """Whether prompts have kernels of their own; where experts are missing, these have to come through a ring."""
        return self._prompt is not None and (self.tier is None or self._prompt.streaming is not None)

    def lacks(self, experts: Streaming | None, *, rows: int = USUAL, loan: Loan | None = None) -> None:
        """Say what prompts do not find on the device.

        Args:
            experts: through which those come that have no slot; None where all have one.
            rows: of the longest pass that there is memory for. Where experts come, each moves all of them.
            loan: from which long ones have their memory; None where it is there all the time.
        """
        if self._prompt is None:
            return
        self._loan = loan
        if loan is not None:
            loan.forget = self._prompt.forget
        if experts is not None:
            self._prompt.bring(experts)
        if self._reads_prompts:
            self._prompt.most = self.pass_rows = rows if experts is None else experts.pass_rows(rows)

    def ready(self, rows: int) -> int:
        """See `Ops.ready`."""
        return rows if self._loan is None else self._loan.ready(rows)

    def shorten(self, rows: int, why: str) -> bool:
        """See `Ops.shorten`."""
        if self._loan is None or not self._loan.shorten(rows, why):
            return False
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # the pass that was given up
            torch.cuda.empty_cache()
        return True

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
            # Windows follow one another, whatever their shape, and nobody reads an older one's numbers (`begin`).
            recording = self._recording = Recording(next((one for one, _ in self.recorded.values()), None))
            self._mixers_met = 0
            try:
                with recording.capture():
                    x = self._whole(batch, body, head)
            finally:
                self._recording = None
            recorded = self.recorded[batch.counts] = (recording, x)
        recorded[0].replay()
        return recorded[1]

    def eager(self) -> None:
        """Record nothing any more, and repeat nothing that was recorded: for those who look at every launch."""
        self._graphs = False
        self.recorded.clear()
        self._small.clear()
        self._following.again = None

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
        """See `Ops.commit`.

        Raises:
            RequestError: not all rows of a pass that is no window: it keeps only what is behind its last one.
        """
        if isinstance(done, PromptPass):
            assert self._prompt is not None, "it computed the pass"
            self._prompt.commit(state, done, n)
            return
        batch, i = done.batch, done.index
        if n and batch.left is not None:
            if n < len(done.ids):
                raise RequestError(f"a pass of {len(done.ids)} rows is committed whole, not {n} of them")
            self._pool.keep(state, batch.left, state.length + n)
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

    @property
    def miss(self) -> float:
        """See `Ops.miss`."""
        return 0.0 if self.tier is None else self.tier.miss

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
