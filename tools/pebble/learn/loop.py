"""The training loop."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pebble.data.workers import Feed
from pebble.learn import checkpoint
from pebble.learn.initial import initialise
from pebble.learn.losses import Batch, losses
from pebble.learn.optimisers import Optimisers
from pebble.learn.rehearsal import iq3_s, iq4_nl, straight_through
from pebble.learn.schedule import Plan, length_of, plan
from pebble.net.fused import use_compiler
from pebble.net.trunk import Pebble
from pebble.shape import Shape

Examine = Callable[[Pebble, torch.dtype], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Settings:
    """One run.

    Attributes:
        stock: folder made by ``prepare``.
        out: folder for the log and the checkpoint.
        budget: seconds of training; with ``steps`` set, progress counts steps instead.
        steps: total steps, for runs that must repeat exactly.
        batch: tokens per step.
        seed: of weights and data.
        workers: data processes.
        examine_every: seconds between ability tables.
        save_every: seconds between checkpoints.
        stop_after: stop at this step as if interrupted, a checkpoint written.
        shape: dimensions.
    """

    stock: Path
    out: Path
    budget: float
    steps: int = 0
    batch: int = 65536
    seed: int = 1
    workers: int = 12
    examine_every: float = 75.0
    save_every: float = 120.0
    stop_after: int = 0
    shape: Shape = Shape()  # noqa: RUF009  # frozen


class Trainer:
    """A model, its optimisers and its place in the schedule."""

    def __init__(self, settings: Settings, grid: Tensor) -> None:
        self.settings = settings
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        torch.set_float32_matmul_precision("high")
        self.model = Pebble(settings.shape)
        initialise(self.model, settings.seed)
        self.model.to(self.device)
        self.optimisers = Optimisers(self.model)
        self.at = checkpoint.Progress()
        self.grid = grid.to(self.device)
        settings.out.mkdir(parents=True, exist_ok=True)
        self.saved = settings.out / "checkpoint.pt"
        if self.saved.exists():
            self.at = checkpoint.restore(self.saved, self.model, self.optimisers)
        use_compiler(on=self.device.type == "cuda")

    def log(self, **entry: Any) -> None:
        """One line of the log, on paper and on screen."""
        line = json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in entry.items()})
        with (self.settings.out / "log.jsonl").open("a", encoding="utf-8") as paper:
            paper.write(line + "\n")
        print(line, flush=True)

    def progress(self, step: int, elapsed: float) -> float:
        """0 at the start, 1 at the end: by steps if their number is given, by the clock otherwise."""
        if self.settings.steps:
            return step / self.settings.steps
        return elapsed / self.settings.budget

    def _rehearse(self, *, on: bool) -> None:
        """Give every expert layer the values its file types would store, or take them away."""
        layers = [*self.model.model.layers, *self.model.mtp.layers]
        for layer in layers:
            layer.mlp.rehearsed = None
        if not on:
            return
        gate_up = torch.stack([layer.mlp.experts.gate_up_proj.detach() for layer in layers])
        down = torch.stack([layer.mlp.experts.down_proj.detach() for layer in layers])
        for layer, g, d in zip(layers, iq3_s(gate_up, self.grid), iq4_nl(down), strict=True):
            held = layer.mlp.experts
            layer.mlp.rehearsed = straight_through(held.gate_up_proj, g), straight_through(held.down_proj, d)

    def step(self, batch: Batch, now: Plan) -> dict[str, Tensor]:
        """One update."""
        self._rehearse(on=now.rehearse)
        seed = self.settings.seed * 1_000_003 + self.at.step
        total, parts = losses(self.model, batch, choose=now.choose, draft=now.draft, dtype=self.dtype, seed=seed)
        total.backward()
        parts["norm"] = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # before clipping
        self.optimisers.step(now.rate)
        return parts

    def batch(self, drawn: tuple[Any, Any]) -> Batch:
        """A drawn batch on the device."""
        ids, weights = torch.from_numpy(drawn[0].astype("int32")), torch.from_numpy(drawn[1])
        if self.device.type == "cuda":  # from pinned memory copies do not stall the queue of kernels
            ids, weights = ids.pin_memory(), weights.pin_memory()
        ids, weights = ids.to(self.device, non_blocking=True).long(), weights.to(self.device, non_blocking=True)
        return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weights[:, 1:].contiguous())

    def save(self) -> None:
        """Write the checkpoint."""
        checkpoint.save(self.saved, self.model, self.optimisers, self.at)


def _ask(feed: Feed, trainer: Trainer, step: int, elapsed: float) -> None:
    """Request the batch of one step."""
    progress = min(1.0, trainer.progress(step, elapsed))
    length = length_of(step, progress)
    feed.ask(step, trainer.settings.batch // length, length, progress)


def train(trainer: Trainer, examine: Examine | None = None) -> None:
    """Run to the end of the budget, from wherever the checkpoint left off."""
    settings, at = trainer.settings, trainer.at
    feed = Feed(settings.stock, settings.seed, settings.workers)
    ahead = 3 * settings.workers + 1
    asked, began, before = at.step, time.monotonic(), at.elapsed
    examined = saved = waited = 0.0
    marks = (at.step, at.elapsed, at.tokens)
    while (progress := trainer.progress(at.step, at.elapsed)) < 1:
        while asked < at.step + ahead:
            _ask(feed, trainer, asked, at.elapsed)
            asked += 1
        wait = time.monotonic()
        batch = trainer.batch(feed.take())
        waited += time.monotonic() - wait
        now = plan(at.step, progress, batch.inputs.shape[1])
        parts = trainer.step(batch, now)
        at.step += 1
        at.tokens += batch.inputs.numel()
        if at.step % 20 == 0 or at.step < 5:
            values = {name: part.item() for name, part in parts.items()}
            at.elapsed = before + time.monotonic() - began
            speed = (at.tokens - marks[2]) / max(at.elapsed - marks[1], 1e-9)
            trainer.log(
                step=at.step, elapsed=at.elapsed, progress=trainer.progress(at.step, at.elapsed), tokens=at.tokens,
                length=now.length, choose=now.choose, draft=now.draft, rehearse=now.rehearse, rate=now.rate,
                speed=speed, waited=waited, **values,
            )  # fmt: skip
            marks, waited = (at.step, at.elapsed, at.tokens), 0.0
            if not values["norm"] < 1e6:
                raise FloatingPointError(f"gradient norm {values['norm']} at step {at.step}")
        at.elapsed = before + time.monotonic() - began
        if examine and at.elapsed - examined > settings.examine_every:
            trainer.log(step=at.step, elapsed=at.elapsed, tokens=at.tokens, **examine(trainer.model, trainer.dtype))
            examined = at.elapsed = before + time.monotonic() - began
            marks = (at.step, at.elapsed, at.tokens)
        if at.elapsed - saved > settings.save_every:
            trainer.save()
            saved = at.elapsed
        if at.step == settings.stop_after:
            break
    trainer.save()
    feed.close()
