"""GPU kernels as tests call them: on the GPU where kernels are compiled for one, else in Triton's interpreter.

Tests hold tensors on the CPU, where the formulas are; a launch takes them to the device and brings back what changed.
Those that are there already stay there.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton

from strata.experts.judge import quantise_rows

NATIVE = not triton.knobs.runtime.interpret
"""Kernels run on a GPU in this process."""


class Kernels:
    """The kernels of a module."""

    def __init__(self, name: str) -> None:
        self._module = importlib.import_module(name)

    def __getattr__(self, name: str) -> Any:
        return _Launcher(getattr(self._module, name))


class _Launcher:
    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **constants: _launch(self._kernel[grid], args, constants)


def _launch(run: Any, args: tuple[Any, ...], constants: dict[str, Any]) -> None:
    if not NATIVE:
        run(*args, **constants)
        return
    moved: dict[int, torch.Tensor] = {}
    there = {id(x): _over(x, moved) for x in args if isinstance(x, torch.Tensor) and x.device.type == "cpu"}
    run(*(there.get(id(x), x) for x in args), **constants)
    for x in args:
        if id(x) in there:
            x.copy_(there[id(x)])


def _over(x: torch.Tensor, moved: dict[int, torch.Tensor]) -> torch.Tensor:
    """The same on the device; tensors that share memory here do so there."""
    here = x.untyped_storage()
    if here.data_ptr() not in moved:
        moved[here.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(here).cuda()
    there = moved[here.data_ptr()].untyped_storage()
    return torch.empty(0, dtype=x.dtype, device="cuda").set_(there, x.storage_offset(), x.size(), x.stride())


def poisoned(rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Room for quantised rows, as `strata.ops.matvec.triton.Activations` holds them, full of what no kernel writes."""
    nan = torch.full((rows, width // 32), torch.nan)
    return torch.full((rows, 2, width // 32, 16), -128, dtype=torch.int8), nan, nan.clone()


def holds_quantised(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> None:
    """Codes, scales and scaled sums are to the byte those of the judge for `x`."""
    codes, scales = quantise_rows(x.numpy())
    assert np.array_equal(q.transpose(1, 2).reshape(x.shape).numpy(), codes)
    assert np.array_equal(s.numpy(), scales)
    sums = codes.reshape(*scales.shape, 32).astype(np.int32).sum(-1)
    assert np.array_equal(z.numpy(), scales * sums.astype(np.float32))
