"""Names, shapes and types of the file's tensors (gguf-tensors spec; types as a public 3-bit file has them)."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from math import sqrt

import numpy as np

from strata.gguf.encode import Writable
from strata.lab.synthetic.words import first_control, vocabulary


class Fill(Enum):
    """What a tensor holds."""

    RANDOM = auto()
    ONES = auto()
    DECAY = auto()
    """-exp of -1 to 2: the recurrent layers' ``a``."""
    STEP = auto()
    """-4 to 0: their bias of ``dt``."""


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Dimensions; the defaults are the released model's, but for the n-gram table.

    Attributes:
        layers: every fourth is sparse attention.
        experts: routed ones of a layer.
        used: of them for one token.
        vocabulary: tokens.
        ngram_rows: rows of each of the 16 hashed tables (released: 20 million).
        gate_up: type of the routed experts' gate and up.
        down: of their down.
    """

    layers: int = 48
    experts: int = 512
    used: int = 10
    vocabulary: int = 248320
    ngram_rows: int = 200_000
    gate_up: str = "IQ3_XXS"
    down: str = "IQ4_NL"

    hidden = 2560
    streams = 4
    rank = 320
    heads = 24
    kv_heads = 2
    head = 256
    inner = 640
    gdn_keys = 16
    gdn_values = 48
    gdn_head = 128
    taps = 4
    index_heads = 4
    index_head = 128
    ratio = 4
    ngram_width = 160

    @property
    def tables(self) -> list[int]:
        """Rows of each n-gram table; all different, as in the released model."""
        return [self.ngram_rows + 1 + 2 * i for i in range(16)]

    @property
    def wide(self) -> int:
        """Width of all streams together."""
        return self.hidden * self.streams

    def attention(self, layer: int) -> bool:
        """Whether the layer is sparse attention."""
        return layer % 4 == 3


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor to fill.

    Attributes:
        name: in the file.
        shape: outputs first.
        type: block type's name.
        fill: with what.
        deviation: standard deviation of random weights.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    fill: Fill
    deviation: float = 0.0


def metadata(s: Synthetic) -> dict[str, Writable]:
    """Keys of the header."""
    sizes = s.tables
    own: dict[str, Writable] = {
        "vocab_size": s.vocabulary,
        "block_count": s.layers,
        "context_length": 262144,
        "embedding_length": s.hidden,
        "embedding_length_per_layer_input": s.ngram_width,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv_heads,
        "attention.key_length": s.head,
        "attention.value_length": s.head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.indexer.head_count": s.index_heads,
        "attention.indexer.key_length": s.index_head,
        "attention.indexer.top_k": 2048,
        "attention.compress_ratios": np.array([s.ratio if s.attention(i) else 0 for i in range(s.layers)], np.uint32),
        "rope.dimension_count": 64,
        "rope.dimension_sections": np.array([11, 11, 10, 0], np.int32),
        "rope.freq_base": 1e7,
        "full_attention_interval": 4,
        "expert_count": s.experts,
        "expert_used_count": s.used,
        "expert_feed_forward_length": s.inner,
        "expert_shared_feed_forward_length": s.inner,
        "hyper_connection.count": s.streams,
        "hyper_connection.low_rank": s.rank,
        "ssm.conv_kernel": s.taps,
        "ssm.group_count": s.gdn_keys,
        "ssm.inner_size": s.gdn_values * s.gdn_head,
        "ssm.state_size": s.gdn_head,
        "ssm.time_step_rank": s.gdn_values,
        "ple.layers": np.array([1], np.uint32),
        "ple.ngram_size": 3,
        "ple.heads_per_ngram": 8,
        "ple.conv_kernel": s.taps,
        "ple.eos_token_id": first_control(s.vocabulary),
        "ple.layer_multipliers": np.array([23703573157769, 20109073645365, 8052911324071], np.uint64),
        "ple.head_offsets": np.array([sum(sizes[:i]) for i in range(len(sizes))], np.uint64),
        "ple.head_vocab_sizes": np.array(sizes, np.uint64),
    }
    general: dict[str, Writable] = {
        "general.architecture": "qwen4exp",
        "general.type": "model",
        "general.name": "random weights in the shapes of qwen4exp",
        "general.quantization_version": 2,
    }
    return general | {f"qwen4exp.{key}": value for key, value in own.items()} | vocabulary(s.vocabulary)


def tensors(s: Synthetic) -> Iterator[Planned]:
    """All of them, in the file's order."""
    rows = -(-sum(s.tables) // 128) * 128
    # Embeddings of deviation one keep the streams about their token, so that routing stays diverse.
    yield Planned("token_embd.weight", (s.vocabulary, s.hidden), "Q4_K", Fill.RANDOM, 1.0)
    yield _matrix("output.weight", (s.vocabulary, s.hidden), "Q4_K")
    yield from _read(s, "output_hc")
    yield Planned("per_layer_token_embd.weight", (rows, s.ngram_width), "IQ4_NL", Fill.RANDOM, 1.0)
    for layer in range(s.layers):
        here = f"blk.{layer}."
        for part in ("attn", "ffn"):
            yield from _read(s, f"{here}hc_{part}")
            yield _matrix(f"{here}hc_{part}_inject.weight", (s.streams, s.wide), "F32")
        yield from _attention(s, here) if s.attention(layer) else _recurrent(s, here)
        if layer == 1:
            yield from _ngram(s, here)
        yield from _experts(s, here)


def _matrix(name: str, shape: tuple[int, ...], kind: str, gain: float = 1.0) -> Planned:
    return Planned(name, shape, kind, Fill.RANDOM, gain / sqrt(shape[-1]))


def _ones(name: str, width: int) -> Planned:
    return Planned(name, (width,), "F32", Fill.ONES)


def _read(s: Synthetic, name: str) -> Iterator[Planned]:
    yield _ones(f"{name}_norm.weight", s.wide)
    yield _matrix(f"{name}_down.weight", (s.rank, s.wide), "Q8_0")
    yield _matrix(f"{name}_up.weight", (s.wide, s.rank), "Q8_0")


def _attention(s: Synthetic, here: str) -> Iterator[Planned]:
    queries, cells = s.heads * s.head, s.kv_heads * s.head
    yield _matrix(f"{here}attn_q.weight", (2 * queries, s.hidden), "Q5_K")
    yield _matrix(f"{here}attn_k.weight", (cells, s.hidden), "Q5_K")
    yield _matrix(f"{here}attn_v.weight", (cells, s.hidden), "Q5_K")
    yield _matrix(f"{here}attn_output.weight", (s.hidden, queries), "Q5_K")
    yield _matrix(f"{here}indexer.q_proj.weight", (s.index_heads * s.index_head, s.hidden), "BF16")
    yield _matrix(f"{here}indexer.k_proj.weight", (s.index_head, s.hidden), "BF16")
    for name, width in (("attn_", s.head), ("indexer.", s.index_head)):
        yield _ones(f"{here}{name}q_norm.weight", width)
        yield _ones(f"{here}{name}k_norm.weight", width)


def _recurrent(s: Synthetic, here: str) -> Iterator[Planned]:
    values = s.gdn_values * s.gdn_head
    channels = 2 * s.gdn_keys * s.gdn_head + values
    yield _matrix(f"{here}attn_qkv.weight", (channels, s.hidden), "Q5_K")
    yield _matrix(f"{here}attn_gate.weight", (values, s.hidden), "Q5_K")
    yield Planned(f"{here}ssm_conv1d.weight", (channels, s.taps), "F32", Fill.RANDOM, 0.5)
    yield Planned(f"{here}ssm_dt.bias", (s.gdn_values,), "F32", Fill.STEP)
    yield Planned(f"{here}ssm_a", (s.gdn_values,), "F32", Fill.DECAY)
    yield _matrix(f"{here}ssm_beta.weight", (s.gdn_values, s.hidden), "F32")
    yield _matrix(f"{here}ssm_alpha.weight", (s.gdn_values, s.hidden), "F32")
    yield _ones(f"{here}ssm_norm.weight", s.gdn_head)
    yield _matrix(f"{here}ssm_out.weight", (s.hidden, values), "Q6_K", 0.3)


def _ngram(s: Synthetic, here: str) -> Iterator[Planned]:
    yield _matrix(f"{here}ple_key.weight", (s.wide, s.hidden), "Q8_0")
    yield _matrix(f"{here}ple_value.weight", (s.hidden, s.hidden), "Q8_0", 0.3)
    for name in ("key", "query", "conv"):
        yield _ones(f"{here}ple_norm_{name}.weight", s.wide)
    yield Planned(f"{here}ple_conv1d.weight", (s.wide, s.taps), "F32", Fill.RANDOM, 0.1)


def _experts(s: Synthetic, here: str) -> Iterator[Planned]:
    yield _matrix(f"{here}ffn_gate_inp.weight", (s.experts, s.hidden), "F32", 2.0)
    yield Planned(f"{here}ffn_gate_inp_shexp.weight", (s.hidden,), "F32", Fill.RANDOM, 1 / sqrt(s.hidden))
    yield _matrix(f"{here}ffn_gate_shexp.weight", (s.inner, s.hidden), "Q5_K")
    yield _matrix(f"{here}ffn_up_shexp.weight", (s.inner, s.hidden), "Q5_K")
    yield _matrix(f"{here}ffn_down_shexp.weight", (s.hidden, s.inner), "Q8_0", 0.3)
    yield _matrix(f"{here}ffn_gate_exps.weight", (s.experts, s.inner, s.hidden), s.gate_up)
    yield _matrix(f"{here}ffn_up_exps.weight", (s.experts, s.inner, s.hidden), s.gate_up)
    yield _matrix(f"{here}ffn_down_exps.weight", (s.experts, s.hidden, s.inner), s.down)
