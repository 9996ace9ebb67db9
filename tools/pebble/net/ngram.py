"""PLE: hashed n-gram embeddings injected before layer 1 (section 10)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from pebble.net.basics import matmul, shift
from pebble.net.fused import fused
from pebble.net.hashing import constants, row_indices
from pebble.net.streams import Norm
from pebble.shape import Shape


class _Table(nn.Module):
    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.ngram_embedding = nn.Embedding(rows, width)


class Ngram(nn.Module):
    """The table, its projections, norms and dilated convolution."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.table = constants(shape)
        # Kept on the device: a copy from the host in every step would stall the queue of kernels.
        self.register_buffer("sizes", torch.tensor(self.table.sizes), persistent=False)
        self.register_buffer("offsets", torch.tensor(self.table.offsets), persistent=False)
        self.eos, self.eps, self.dilation = shape.eos, shape.eps, shape.n
        wide, width = shape.S * shape.H, len(self.table.sizes) * shape.ngram_width
        self.ple_embedding = _Table(self.table.rows, shape.ngram_width)
        self.key_proj = nn.Linear(width, wide, bias=False)
        self.value_proj = nn.Linear(width, shape.H, bias=False)
        self.norm_key, self.norm_query, self.norm_conv = Norm(wide), Norm(wide), Norm(wide)
        self.conv1d = nn.Conv1d(wide, wide, shape.conv, groups=wide, bias=False)

    def forward(self, streams: Tensor, ids: Tensor, position: Tensor) -> Tensor:
        """Add the n-gram term to streams [N, S, H]; ids and position are int64 [N]."""
        rows = row_indices(ids, position, self.table, self.sizes, self.offsets, self.eos)
        e = F.embedding(rows, self.ple_embedding.ngram_embedding.weight).flatten(1).to(streams.dtype)
        return inject(
            streams,
            e,
            position,
            self.key_proj.weight,
            self.value_proj.weight,
            self.norm_key.weight,
            self.norm_query.weight,
            self.norm_conv.weight,
            self.conv1d.weight,
            self.dilation,
            self.eps,
        )


def _grouped(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (1 + weight.view(x.shape[1:]))


@fused
def inject(
    streams: Tensor,
    e: Tensor,
    position: Tensor,
    key: Tensor,
    value: Tensor,
    norm_key: Tensor,
    norm_query: Tensor,
    norm_conv: Tensor,
    conv: Tensor,
    dilation: int,
    eps: float,
) -> Tensor:
    """Section 10.3: gate the value by key and stream, convolve over time, add both."""
    hidden = streams.shape[-1]
    keys = _grouped(matmul(e, key).view(streams.shape), norm_key, eps)
    a = (keys * _grouped(streams, norm_query, eps)).sum(-1) / hidden**0.5
    a = a.sign() * a.abs().clamp_min(1e-6).sqrt()
    gated = torch.sigmoid(a)[:, :, None] * matmul(e, value).float()[:, None, :]
    normed = _grouped(gated, norm_conv, eps).flatten(1)
    taps = conv.shape[-1]
    mixed = conv[:, 0, taps - 1] * normed
    for back in range(1, taps):
        mixed = mixed + conv[:, 0, taps - 1 - back] * shift(normed, position, dilation * back)
    return (streams.float() + gated + F.silu(mixed).view(streams.shape)).to(streams.dtype)
