"""Pebble's dimensions, and the smaller ones the tests use."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Every dimension of one model; letters as in docs/dimensions.md.

    Attributes:
        V: vocabulary entries.
        H: hidden width.
        L: trunk layers; every fourth is QSA.
        S: residual streams.
        r: rank of the hyper-connections.
        nk: GDN key heads.
        nv: GDN value heads.
        d: GDN head width.
        nh: QSA query heads.
        nkv: QSA key/value heads.
        hd: QSA head width.
        rotated: rotated dimensions of a head.
        sections: M-RoPE frequencies for t, h, w.
        theta: rotary base.
        ih: indexer query heads.
        id: indexer head width.
        budget: tokens the indexer may select.
        ratio: tokens per block.
        E: routed experts.
        topk: experts per token.
        I: width of a routed expert.
        shared: width of the shared expert.
        ngram_heads: table heads per n-gram length.
        ngram_width: numbers per table row.
        ngram_base: table size of the first head.
        eos: id that cuts the n-gram context.
        conv: taps of both convolutions.
        n: longest n-gram, and dilation of the PLE convolution.
        depth: draft steps trained.
        context: context length written into the file: the longest row in training.
        eps: added inside every root.
    """

    V: int = 2560
    H: int = 256
    L: int = 8
    S: int = 4
    r: int = 32
    nk: int = 2
    nv: int = 6
    d: int = 64
    nh: int = 4
    nkv: int = 2
    hd: int = 64
    rotated: int = 16
    sections: tuple[int, int, int] = (3, 3, 2)
    theta: float = 1e7
    ih: int = 4
    id: int = 64
    budget: int = 256
    ratio: int = 4
    E: int = 16
    topk: int = 4
    I: int = 64  # noqa: E741  # the specification's letter
    shared: int = 64
    ngram_heads: int = 4
    ngram_width: int = 32
    ngram_base: int = 4096
    eos: int = 2534
    conv: int = 4
    n: int = 3
    depth: int = 3
    context: int = 2048
    eps: float = 1e-6

    def is_qsa(self, layer: int) -> bool:
        """Whether a trunk layer attends (every fourth) or is recurrent."""
        return (layer + 1) % 4 == 0

    @property
    def channels(self) -> int:
        """Width of the GDN convolution: q, k and v side by side."""
        return (2 * self.nk + self.nv) * self.d

    @property
    def blocks(self) -> int:
        """Blocks the indexer may choose."""
        return self.budget // self.ratio


PEBBLE = Shape()

# Small enough for a training step on one core in well under a second; every part of the model is present.
TINY = Shape(
    V=2560, H=64, L=4, r=32, nk=1, nv=3, d=32, nh=2, nkv=1, hd=32, rotated=16, ih=2, id=32, budget=32, E=4, topk=2,
    I=32, shared=32, ngram_heads=2, ngram_width=16, ngram_base=64,
)  # fmt: skip
