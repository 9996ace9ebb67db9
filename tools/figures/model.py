"""A model file, and networks of it that keep some of their experts elsewhere."""

import fcntl
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from figures.arena import arena
from strata.gguf import open_model
from strata.loading import gpu, tiers
from strata.memory.budget.machine import Rates
from strata.memory.slots import Move
from strata.model import Network, load_config, load_weights
from strata.model.config import Mixer
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.size import USUAL, weight_bytes
from strata.ops.gpu.upload import Upload
from strata.ops.tiers import ram as rams
from strata.ops.tiers.tier import Tier, TierOptions

LOCK = "strata-compile.lock"


class Fixed:
    """A cache that never changes its mind: those that are wanted have slots, class by class."""

    def __init__(self, classes: Sequence[int], experts: int, wanted: Sequence[tuple[int, int]]) -> None:
        self.slot_of = np.full((len(classes), experts), -1, np.int32)
        by_class = [[pair for pair in wanted if classes[pair[0]] == i] for i in range(max(classes) + 1)]
        self.slots = tuple(max(1, len(some)) for some in by_class)
        self._next = [Move(layer, expert, slot) for some in by_class for slot, (layer, expert) in enumerate(some)]

    def seen(self, visits: Any) -> None:
        """Nothing is learned."""

    def resize(self, class_: int, slots: int) -> None:
        """Nobody asks for another number."""
        raise NotImplementedError(f"{slots} slots of class {class_}: these do not change")

    def moves(self, most: int, busy: Any = None) -> list[Move]:  # noqa: ARG002
        """What was wanted at the start."""
        now, self._next = self._next[:most], self._next[most:]
        return now

    def begin(self, move: Move) -> None:
        """Slots were empty."""

    def landed(self, move: Move) -> None:
        """It is there."""
        self.slot_of[move.layer, move.expert] = move.slot


class Model:
    """A file without its draft head.

    Attributes:
        config: dimensions, with the context in force.
        weights: as the file stores them.
        experts: types and shapes of each layer's experts, for the CPU.
        sizes: bytes of an expert's slot, by class.
        classes: of each layer.
        how: where experts lie in RAM, once somebody has asked for them.
    """

    def __init__(self, path: Path, device: torch.device, context: int) -> None:
        self.device = device
        self.directory = open_model(path)
        config = replace(load_config(self.directory.metadata), mtp=False)
        self.config = replace(config, context=min(config.context, context), qsa=replace(config.qsa, kv=gpu.KV))
        self.weights = replace(load_weights(self.directory, self.config), mtp=None)
        self.moes = [layer.moe for layer in self.weights.layers]
        self.kinds, self.experts = rams.layouts(self.moes), rams.described(self.moes)
        self.sizes = sorted({kind.nbytes for kind in self.kinds})
        self.classes = [self.sizes.index(kind.nbytes) for kind in self.kinds]
        self.how = ""
        self._ram: rams.Ram | None = None

    @property
    def layers(self) -> int:
        """How many."""
        return len(self.moes)

    @property
    def ram(self) -> rams.Ram:
        """All experts where the device reaches them; made once, for all networks."""
        if self._ram is None:
            began = time.monotonic()
            self._ram, self.how, self.moes, self.experts = arena(self.directory, self.moes, self.device)
            print(f"experts in RAM: {self.how}, {time.monotonic() - began:.1f} s", flush=True)
        return self._ram

    def facts(self) -> dict[str, float]:
        """Bytes that a window reads, for its bound. Of a table only rows are read, which do not count."""
        layers, c, g = self.weights.layers, self.config, self.config.gdn
        tables: Any = (self.weights.embed, *(layer.ple.table for layer in layers if layer.ple is not None))
        routed = c.moe.E * sum(kind.nbytes for kind in self.kinds)
        dense = weight_bytes(self.weights)[1] - weight_bytes(tables)[1] - routed
        recurrent = sum(mixer is Mixer.GDN for mixer in c.mixers)
        each = [sum(m.nbytes for m in layer) for layer in self.experts]
        return {
            "layers": len(layers),
            "topk": c.moe.topk,
            "experts_of_a_layer": c.moe.E,
            "dense_bytes": dense,
            "state_bytes": 2 * 4 * recurrent * g.nv * g.d * g.d,
            "slot_bytes": sum(kind.nbytes for kind in self.kinds) / len(layers),
            "expert_bytes": sum(each) / len(each),
        }

    def network(
        self,
        cache: Any = None,
        slots: tuple[int, ...] = (),
        options: TierOptions | None = None,
        *,
        skew: float = 0.0,
        cells: int = 0,
        ahead: bool = False,
        ram: rams.Ram | None = None,
        passes: tuple[int, int] = (0, 0),
    ) -> tuple[Network, Tier | None]:
        """With all experts on the device, or with those that a cache says.

        Args:
            cache: which experts have slots; None for all.
            slots: of each class.
            options: of the tier.
            skew: how unequal the routers' rows are made.
            cells: of attention, of two conversations together; 0 for the context once.
            ram: where experts lie beside the device; None for all of them in RAM.
            passes: of the one conversation of a plan, rows of the longest over a prompt that borrows nothing, and that
                borrows; zeros for two conversations, and the usual passes, which have memory of their own.
            ahead: compile what is not on disk yet by several processes; otherwise each kernel where it is met.
        """
        device, c, tier = self.device, self.config, None
        _, rows = passes
        if cache is not None:
            ram = ram or self.ram  # first, for it says which matrices are described
            tier = Tier(
                self.kinds, self.experts, ram, cache, self.classes, slots, c.moe.topk, device,
                options or TierOptions(),
            )  # fmt: skip
            tier.fill()
        moved = Upload(device, tier=tier).all(self.weights)
        if skew:
            for number, layer in enumerate(moved.layers):
                spread = torch.randn(c.moe.E, generator=torch.Generator().manual_seed(number))
                routers: Any = layer.moe
                routers.choosing[: c.moe.E] *= (skew * spread).exp()[:, None].to(device)
        kv = torch.bfloat16 if device.type == "cuda" else torch.float32  # the interpreter has no arithmetic of bfloat16
        pool = Pool(c, device, slots=1 if rows else 2, cells=cells or c.context, kv=kv)
        coming, loan = tiers.prompts(tier, moved, c, device, Rates().disk, passes if rows else (USUAL, USUAL))

        def made(*, graphs: bool) -> Network:
            ops = GpuOps(c, pool, device, graphs=graphs, tier=tier)
            ops.lacks(coming, rows=rows or USUAL, loan=loan if rows else None)
            return Network(c, moved, ops)  # type: ignore[arg-type]

        if ahead and device.type == "cuda":
            self._compile(made(graphs=False), tier)
        return made(graphs=True), tier

    def _compile(self, network: Network, tier: Tier | None) -> None:
        """Whatever goes wrong here shows again, with its reason, where the kernel is launched."""
        card, began = gpu.find("cuda"), time.monotonic()
        assert card is not None
        try:
            # One process of several compiles, with all processors; the others then find everything on disk.
            with self.directory.files[0].with_name(LOCK).open("w") as lock, tiers.still(tier):
                fcntl.flock(lock, fcntl.LOCK_EX)
                gpu.compile_ahead(network, card)
        except Exception as error:  # noqa: BLE001  # as said
            print(f"kernels were not compiled ahead: {type(error).__name__}: {error}", flush=True)
        print(f"kernels compiled ahead: {time.monotonic() - began:.1f} s", flush=True)
