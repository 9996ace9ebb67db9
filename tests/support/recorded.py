"""Records of launches where there is no GPU: what a captured graph is, for kernels in Triton's interpreter.

As in a graph, what is recorded does not run, and a replay repeats it with the very memory and numbers that it was
recorded with: whatever has moved since is not found.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction

from strata.ops.gpu.ops import GpuOps


class Recording:
    """`strata.ops.gpu.record.Recording`, of the interpreter."""

    made = 0
    """Captures in this process."""

    memory = None

    def __init__(self, beside: Any = None) -> None:  # noqa: ARG002  # memory is not shared
        self.steps: list[Callable[[], Any]] = []

    @contextmanager
    def capture(self) -> Iterator[None]:
        Recording.made += 1
        run = InterpretedFunction.run

        def noted(kernel: Any, *args: Any, **constants: Any) -> None:
            self.steps.append(lambda: run(kernel, *args, **constants))

        InterpretedFunction.run = noted
        try:
            with _Torch(self.steps):
                yield
        finally:
            InterpretedFunction.run = run

    def cut(self) -> None:
        """Parts run one after the other anyway."""

    def host(self, action: Callable[[], None]) -> None:
        self.steps.append(action)

    def replay(self) -> None:
        for step in self.steps:
            step()


class _Torch(TorchDispatchMode):
    """Operations of torch among the launches."""

    def __init__(self, steps: list[Callable[[], Any]]) -> None:
        super().__init__()
        self._steps = steps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if "empty" in str(func):
            found.zero_()  # what is looked up by numbers of it, for nothing is computed yet, is there
        else:
            self._steps.append(lambda: _again(found, func(*args, **(kwargs or {}))))
        return found


def _again(first: Any, now: Any) -> None:
    """What an operation gives this time, where it was the first time."""
    if isinstance(first, torch.Tensor):
        if first.data_ptr() != now.data_ptr():
            first.copy_(now)
    elif isinstance(first, list | tuple):
        for one, other in zip(first, now, strict=True):
            _again(one, other)


def recorded(ops: GpuOps, monkeypatch: Any) -> None:
    """Let windows and short prompts be recorded when their shape is met the second time, as on a GPU."""
    for module in ("gpu.ops", "prompt.records"):
        monkeypatch.setattr(f"strata.ops.{module}.Recording", Recording)
    ops._graphs = True
    if ops._prompt is not None:
        ops._prompt._graphs = True
