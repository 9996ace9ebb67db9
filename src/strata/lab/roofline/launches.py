"""What kernels are launched with."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triton.runtime.jit import JITFunction


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    Attributes:
        name: of the function.
        arguments: by name, constants too.
        grid: programs along each axis.
    """

    name: str
    arguments: dict[str, Any]
    grid: tuple[int, ...]


@contextmanager
def launches() -> Iterator[list[Launch]]:
    """The list of all launches made in the meantime, in order."""
    seen: list[Launch] = []
    run = JITFunction.run

    def noted(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        names = self.arg_names
        given = dict(zip(names, args, strict=False)) | {k: v for k, v in options.items() if k in names}
        seen.append(Launch(self.fn.__name__, given, tuple(grid) if isinstance(grid, tuple | list) else ()))
        return run(self, *args, grid=grid, warmup=warmup, **options)

    JITFunction.run = noted
    try:
        yield seen
    finally:
        JITFunction.run = run
