"""A switch that sends small functions of flat [tokens, ...] tensors through the compiler.

Each takes its weights as arguments, so one compilation serves all layers and both row lengths.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


class _Switch:
    on = False


def use_compiler(*, on: bool) -> None:
    """Compile decorated functions from their next call on, or stop doing so."""
    _Switch.on = on


def fused(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a pure tensor function so that :func:`use_compiler` governs it."""
    compiled: list[Callable[P, R]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _Switch.on:
            return function(*args, **kwargs)
        if not compiled:
            compiled.append(torch.compile(function, dynamic=False, fullgraph=True))
        return compiled[0](*args, **kwargs)

    return call
