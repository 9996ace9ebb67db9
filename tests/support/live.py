"""Bytes in use while a model of any shapes computes: nothing is launched, and weights are room that nobody touches."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import GridExecutor

from strata.gguf import open_model
from strata.lab.synthetic.shapes import Synthetic, metadata, tensors
from strata.model import ModelConfig, Network, load_config, load_weights
from strata.model.weights import Quantised
from strata.ops.experts.slots import SlotLayout, Slots
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.planes import layout
from support.hollow import hollow


class Live(TorchDispatchMode):
    """Counts bytes of tensors that operations make, from each one's first use to the end of its last view.

    Attributes:
        now, peak: bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._users: dict[int, list[int]] = {}  # bytes and users of a storage, by its address

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        made = all(one.alias_info is None for one in func._schema.returns)
        for one in found if isinstance(found, tuple | list) else (found,):
            if isinstance(one, torch.Tensor):
                self._met(one, made=made)
        return found

    def _met(self, one: torch.Tensor, *, made: bool) -> None:
        place, nbytes = one.untyped_storage().data_ptr(), one.untyped_storage().nbytes()
        if not nbytes or not (made or place in self._users):
            return
        known = self._users.setdefault(place, [nbytes, 0])
        if not known[1]:
            self.now += nbytes
            self.peak = max(self.peak, self.now)
        known[1] += 1
        weakref.finalize(one, self._gone, place)

    def _gone(self, place: int) -> None:
        known = self._users[place]
        known[1] -= 1
        if not known[1]:
            self.now -= known[0]
            del self._users[place]


class _Untouched(Upload):
    """Room for weights, as large as an upload's."""

    def _packed(self, w: Quantised) -> torch.Tensor:
        rows, width = w.shape
        return torch.empty(layout(w.type.name).nbytes(rows, width), dtype=torch.uint8)

    def _slots(self, gate: Quantised, up: Quantised, down: Quantised) -> Slots:
        count, inner, hidden = gate.shape
        where = SlotLayout(gate.type.name, up.type.name, down.type.name, hidden, inner)
        data = torch.empty((count, where.nbytes), dtype=torch.uint8)
        return Slots(where, data, torch.arange(count, dtype=torch.int32))


def untouched(path: Path, shapes: Synthetic, context: int) -> tuple[Network, ModelConfig]:
    """A network of some shapes whose weights take no memory; only for `counted`."""
    file = hollow(path / "m.gguf", metadata(shapes), [[(one.name, one.shape, one.type) for one in tensors(shapes)]])
    directory = open_model(file)
    config = replace(load_config(directory.metadata), mtp=False, context=context)
    device = torch.device("cpu")
    weights = _Untouched(device).all(load_weights(directory, config))
    pool = Pool(config, device, slots=1, cells=context)
    return Network(config, weights, GpuOps(config, pool, device)), config


def counted(body: Callable[[], Any]) -> int:
    """Most bytes that were in use at a time, of what a body made; no kernel runs."""
    with pytest.MonkeyPatch.context() as patched, torch.inference_mode(), Live() as live:
        patched.setattr(GridExecutor, "__call__", lambda *_, **__: None)
        body()
    return live.peak
