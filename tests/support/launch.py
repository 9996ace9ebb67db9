"""GPU kernels as tests call them: on the GPU where kernels are compiled for one, else in Triton's interpreter.

Tests hold tensors on the CPU, where the formulas are; a launch takes them to the device and brings back what changed.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch
import triton

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
    device = [x.cuda() if isinstance(x, torch.Tensor) else x for x in args]
    run(*device, **constants)
    for x, y in zip(args, device, strict=True):
        if isinstance(x, torch.Tensor):
            x.copy_(y)
