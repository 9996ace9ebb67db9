"""Hyper-connections: reading the residual streams into one input, and writing an output back (section 5)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from pebble.net.basics import matmul, padded
from pebble.net.fused import fused
from pebble.shape import Shape


class Norm(nn.Module):
    """Holds the weight of a "one plus w" norm; zero means identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))


class HyperConnection(nn.Module):
    """Weights of one read and, unless it is a final mixer, of the write that follows."""

    def __init__(self, shape: Shape, *, inject: bool = True) -> None:
        super().__init__()
        wide = shape.S * shape.H
        self.hc_norm = Norm(wide)
        self.input_mix_weight_down = nn.Linear(wide, shape.r, bias=False)
        self.input_mix_weight_up = nn.Linear(shape.r, wide, bias=False)
        if inject:
            self.block_inject_weight = nn.Linear(wide, shape.S, bias=False)

    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """norm, down, up, inject: the arguments of :func:`read`."""
        return (
            self.hc_norm.weight,
            self.input_mix_weight_down.weight,
            self.input_mix_weight_up.weight,
            self.block_inject_weight.weight,
        )


def _normalised(streams: Tensor, norm: Tensor, eps: float) -> Tensor:
    x = streams.float()
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (x * (1 + norm.view(streams.shape[1:]))).to(streams.dtype)


def _mixed(xn: Tensor, low: Tensor, up: Tensor) -> Tensor:
    """Gate each stream through the low-rank path and average: xn [N, S, H], low [N, r] before its division."""
    gate = torch.sigmoid(matmul(F.silu(low.float() / xn.shape[1]).to(xn.dtype), up).float())
    return (gate.view(xn.shape) * xn.float()).mean(1).to(xn.dtype)


def _read(streams: Tensor, norm: Tensor, down: Tensor, up: Tensor, inject: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    xn = _normalised(streams, norm, eps)
    rank, count = down.shape[0], streams.shape[1]
    both = matmul(xn.flatten(1), padded([down, inject]))
    share = 2 * torch.sigmoid(both[:, rank : rank + count].float() / count)
    return _mixed(xn, both[:, :rank], up), share


@fused
def read(streams: Tensor, norm: Tensor, down: Tensor, up: Tensor, inject: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Read streams [N, S, H]: input of the next part [N, H], and its share per stream, float32 [N, S]."""
    return _read(streams, norm, down, up, inject, eps)


@fused
def write(streams: Tensor, out: Tensor, share: Tensor) -> Tensor:
    """Add ``out`` [N, H] to each stream, weighted by ``share`` [N, S]."""
    return (streams.float() + share[:, :, None] * out[:, None, :].float()).to(streams.dtype)


@fused
def write_read(
    streams: Tensor, out: Tensor, share: Tensor, norm: Tensor, down: Tensor, up: Tensor, inject: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A write and the read after it, in one pass over the streams: (streams, input, share)."""
    streams = (streams.float() + share[:, :, None] * out[:, None, :].float()).to(streams.dtype)
    mixed, share = _read(streams, norm, down, up, inject, eps)
    return streams, mixed, share


@fused
def mix(streams: Tensor, norm: Tensor, down: Tensor, up: Tensor, eps: float) -> Tensor:
    """A read without a write after it: the final mixers."""
    xn = _normalised(streams, norm, eps)
    return _mixed(xn, matmul(xn.flatten(1), down), up)
