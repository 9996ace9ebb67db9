"""Operations of a device with something in between: faults put in and passes looked at, nothing patched."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from strata.model.network import Network


class Wrapped:
    """Delegates every operation; named ones go through a function that gets the real one and its arguments."""

    def __init__(self, ops: Any, **calls: Callable[..., Any]) -> None:
        self._ops = ops
        self._calls = calls

    def over(self, batch: Any) -> "Wrapped":
        return Wrapped(self._ops.over(batch), **self._calls)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._ops, name)
        if name not in self._calls:
            return real
        return lambda *args, **more: self._calls[name](real, *args, **more)


def wrapped(network: Network, **calls: Callable[..., Any]) -> Network:
    """The network over wrapped operations."""
    return replace(network, ops=Wrapped(network.ops, **calls))


def with_logits(network: Network, change: Callable[[Tensor], Tensor]) -> Network:
    """The network with its logits changed on the way out."""
    head = network.weights.head

    def linear(real: Callable[..., Tensor], x: Tensor, w: Tensor) -> Tensor:
        return change(real(x, w)) if w is head else real(x, w)

    return wrapped(network, linear=linear)
