"""Muon: momentum, then the nearest orthogonal matrix, batched over matrices of one shape."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

# Quintic Newton-Schulz coefficients that push singular values into about [0.7, 1.2] in five steps.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalised(g: Tensor, steps: int = 5) -> Tensor:
    """[batch, rows, cols] -> the same with all singular values near one; bfloat16 on a GPU."""
    x = g.bfloat16() if g.is_cuda else g
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-12)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.transpose(1, 2) if tall else x


class Muon:
    """Optimiser for hidden matrices.

    A parameter of three dimensions is a stack of matrices; fused ones (gate over up) are taken apart first, so that
    each is made orthogonal on its own.
    """

    def __init__(self, parameters: list[tuple[torch.nn.Parameter, int]], lr: float, momentum: float = 0.95) -> None:
        """``parameters``: (parameter, number of matrices stacked along its rows)."""
        self.lr, self.momentum = lr, momentum
        self._groups: dict[tuple[int, int], list[tuple[torch.nn.Parameter, int]]] = defaultdict(list)
        for p, stacked in parameters:
            self._groups[p.shape[-2] // stacked, p.shape[-1]].append((p, stacked))
        self._buffers: dict[tuple[int, int], Tensor] = {}
        for shape, group in self._groups.items():
            count = sum(p.numel() for p, _ in group) // (shape[0] * shape[1])
            self._buffers[shape] = torch.zeros(count, *shape, device=group[0][0].device)

    def parameters(self) -> list[torch.nn.Parameter]:
        """All parameters, in no particular order."""
        return [p for group in self._groups.values() for p, _ in group]

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """One update at ``factor`` times the base rate, from the parameters' gradients."""
        for shape, group in self._groups.items():
            g = torch.cat([p.grad.reshape(-1, *shape) for p, _ in group if p.grad is not None])
            buffer = self._buffers[shape]
            if g.shape != buffer.shape:  # a part took no part in this step: the draft head, every other step
                g = torch.cat(
                    [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1, *shape) for p, _ in group]
                )
            buffer.mul_(self.momentum).add_(g, alpha=1 - self.momentum)
            update = orthogonalised(g.lerp(buffer, self.momentum)).to(g.dtype)
            rate = self.lr * factor * max(1.0, shape[0] / shape[1]) ** 0.5
            at = 0
            for p, _ in group:
                count = p.numel() // (shape[0] * shape[1])
                if p.grad is not None:
                    p.sub_(update[at : at + count].reshape(p.shape), alpha=rate)
                at += count

    def state_dict(self) -> dict[str, Any]:
        """The momentum buffers."""
        return {f"{rows}x{cols}": b for (rows, cols), b in self._buffers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave."""
        for (rows, cols), buffer in self._buffers.items():
            buffer.copy_(state[f"{rows}x{cols}"])
