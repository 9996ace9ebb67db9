"""The dimensions of one model, read from a file's metadata and never from a class default."""

from dataclasses import dataclass
from enum import Enum


class Mixer(Enum):
    """What mixes tokens in a layer."""

    GDN = "gdn"  # gated delta network: recurrent, model spec section 6
    QSA = "qsa"  # sparse attention with an indexer, section 7


@dataclass(frozen=True, slots=True)
class Gdn:
    """Gated delta network dimensions (section 6). nk divides nv."""

    nk: int  # key (and query) heads
    nv: int  # value heads
    d: int  # head width, keys and values alike
    conv: int  # taps of the short convolution

    @property
    def channels(self) -> int:
        """Width of the convolution: q, k and v side by side."""
        return (2 * self.nk + self.nv) * self.d


@dataclass(frozen=True, slots=True)
class Qsa:
    """Sparse attention dimensions (section 7)."""

    nh: int  # query heads
    nkv: int  # key/value heads
    hd: int  # head width
    ih: int  # indexer query heads
    id: int  # indexer head width
    budget: int  # tokens selected
    ratio: int  # tokens per block
    kv: str = "f32"  # type of the trunk's cached keys and values (`strata.model.kv`); no property of a file


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding (section 8). `scale` 1.0 means no YaRN."""

    dims: int  # rotated dimensions of a head
    theta: float
    sections: tuple[int, int, int]  # frequencies for t, h, w; interleaved
    scale: float = 1.0  # YaRN factor F
    original_context: int = 0  # trained length; used with YaRN only
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention: float = 1.0  # further factor on cos and sin, besides YaRN's own 1 + 0.1 ln F


@dataclass(frozen=True, slots=True)
class Moe:
    """Mixture of experts (section 9)."""

    E: int  # routed experts
    topk: int  # experts per token
    I: int  # noqa: E741  # width of a routed expert; the spec's letter
    shared: int  # width of the shared expert


@dataclass(frozen=True, slots=True)
class Ple:
    """n-gram hash embedding (section 10)."""

    layer: int  # zero-based layer it acts before
    n: int  # longest n-gram
    heads: int  # table heads per n-gram length
    width: int  # numbers per table row
    conv: int  # taps; dilation is n
    eos: int  # token that cuts the hash context
    multipliers: tuple[int, ...]  # n entries, up to 63 bits
    offsets: tuple[int, ...]  # (n-1) * heads entries
    sizes: tuple[int, ...]  # as offsets

    @property
    def rows_per_token(self) -> int:
        """Table rows read for each token."""
        return (self.n - 1) * self.heads


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything the forward pass needs to know besides the weights.

    Letters as in docs/dimensions.md: H hidden, S streams, r rank of the hyper-connections, V vocabulary.
    """

    name: str
    V: int
    H: int
    S: int
    r: int
    eps: float
    context: int  # tokens a conversation may hold: the trained length, unless `stretch` says otherwise
    mixers: tuple[Mixer, ...]  # one per trunk layer
    gdn: Gdn
    qsa: Qsa
    rope: Rope
    moe: Moe
    ple: Ple | None
    mtp: bool  # a draft head is present

    @property
    def L(self) -> int:  # noqa: N802
        """Trunk layers."""
        return len(self.mixers)
