"""Read a model's dimensions from GGUF metadata (gguf-tensors spec, section 2)."""

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from strata.errors import ModelError
from strata.model.config import Gdn, Mixer, ModelConfig, Moe, Ple, Qsa, Rope

ARCHITECTURE = "qwen4exp"

FLOAT32 = 2.0**-126, math.nextafter(2.0**128, 0)
"""Least and largest positive number; what a file stores in more bits must still fit."""


class Keys:
    """Metadata of one architecture, with errors that name the key."""

    def __init__(self, metadata: Mapping[str, Any], prefix: str) -> None:
        self._metadata = metadata
        self._prefix = prefix

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return f"{self._prefix}.{key}" in self._metadata

    def _value(self, key: str) -> Any:
        full = f"{self._prefix}.{key}"
        if full not in self._metadata:
            raise ModelError(f"metadata key {full} is missing")
        return self._metadata[full]

    def integer(self, key: str, *, least: int = 1, default: int | None = None) -> int:
        """An integer of any stored width, at least `least`."""
        if default is not None and not self.has(key):
            return default
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"metadata key {self._prefix}.{key} must be an integer, found {reprlib.repr(value)}")
        if value < least:
            raise ModelError(f"metadata key {self._prefix}.{key} must be at least {least}, found {value}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        """A float, or an integer taken as one: finite, a float32's size, and more than `above`."""
        if default is not None and not self.has(key):
            return default
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"metadata key {self._prefix}.{key} must be a number, found {reprlib.repr(value)}")
        if not (value > above and FLOAT32[0] <= value <= FLOAT32[1]):
            raise ModelError(
                f"metadata key {self._prefix}.{key} must be a finite number above {above:g}, found {value}"
            )
        return float(value)

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self._value(key) if self.has(key) else default
        if not isinstance(value, str):
            raise ModelError(f"metadata key {self._prefix}.{key} must be a string, found {reprlib.repr(value)}")
        return value

    def integer_or_same(self, key: str, count: int) -> int:
        """An integer, or an array of `count` equal ones: some writers store one value a layer."""
        if isinstance(self._value(key), int):
            return self.integer(key)
        each = set(self.integers(key, count, least=1))
        if len(each) != 1:
            raise ModelError(f"metadata key {self._prefix}.{key} must be the same in every layer, found {sorted(each)}")
        return each.pop()

    def integers(self, key: str, count: int | None = None, *, least: int = 0) -> tuple[int, ...]:
        """An array of integers, each at least `least`; `count` entries if given."""
        value = self._value(key)
        if isinstance(value, str) or (not isinstance(value, Sequence) and not hasattr(value, "tolist")):
            raise ModelError(f"metadata key {self._prefix}.{key} must be an array, found {reprlib.repr(value)}")
        items = value.tolist() if hasattr(value, "tolist") else list(value)
        if any(isinstance(x, float | str) for x in items):
            raise ModelError(f"metadata key {self._prefix}.{key} must hold integers")
        if count is not None and len(items) != count:
            raise ModelError(f"metadata key {self._prefix}.{key} must have {count} entries, found {len(items)}")
        if any(x < least for x in items):
            raise ModelError(
                f"metadata key {self._prefix}.{key} must hold values of at least {least}, found {min(items)}"
            )
        return tuple(int(x) for x in items)


def load_config(metadata: Mapping[str, Any]) -> ModelConfig:
    """Read and check all dimensions.

    Raises:
        ModelError: another architecture, or a key that is missing, of the wrong type or out of range.
    """
    found = metadata.get("general.architecture")
    if not isinstance(found, str) or found != ARCHITECTURE:
        raise ModelError(f"architecture is {reprlib.repr(found)}; supported: {ARCHITECTURE!r}")
    keys = Keys(metadata, ARCHITECTURE)
    blocks = keys.integer("block_count")
    drafts = keys.integer("nextn_predict_layers", least=0, default=0)
    if drafts >= blocks or drafts > 1:
        raise ModelError(f"{ARCHITECTURE}.nextn_predict_layers must be 0 or 1 and below block_count, found {drafts}")
    qsa = _qsa(keys)
    listed = len(keys.integers("attention.compress_ratios"))
    if blocks - drafts > listed:  # before one object a layer is made
        raise ModelError(
            f"{ARCHITECTURE}.attention.compress_ratios has {listed} entries, but block_count is {blocks}, "
            f"{drafts} of them for drafts"
        )
    mixers = _mixers(keys, blocks - drafts)
    _check_ratios(keys, mixers, qsa.ratio)
    name = metadata.get("general.name", "unnamed")
    if not isinstance(name, str):
        raise ModelError(f"metadata key general.name must be a string, found {reprlib.repr(name)}")
    config = ModelConfig(
        name=name,
        V=_vocabulary(metadata, keys),
        H=keys.integer("embedding_length"),
        S=keys.integer("hyper_connection.count", least=2),
        r=keys.integer("hyper_connection.low_rank"),
        eps=keys.number("attention.layer_norm_rms_epsilon"),
        context=keys.integer("context_length"),
        mixers=mixers,
        gdn=_gdn(keys),
        qsa=qsa,
        rope=_rope(keys),
        moe=_moe(keys, blocks),
        ple=_ple(keys, mixers) if keys.has("ple.layers") else None,
        mtp=drafts == 1,
    )
    if config.rope.dims > min(qsa.hd, qsa.id):
        raise ModelError(
            f"{ARCHITECTURE}.rope.dimension_count {config.rope.dims} exceeds a head width "
            f"(attention {qsa.hd}, indexer {qsa.id})"
        )
    if config.ple and config.ple.eos >= config.V:
        raise ModelError(f"{ARCHITECTURE}.ple.eos_token_id {config.ple.eos} is outside the vocabulary of {config.V}")
    if config.ple and config.V * max(config.ple.multipliers) >= 1 << 63:
        raise ModelError(f"{ARCHITECTURE}.ple.layer_multipliers are too large for a vocabulary of {config.V}")
    return config


def _vocabulary(metadata: Mapping[str, Any], keys: Keys) -> int:
    if keys.has("vocab_size"):
        return keys.integer("vocab_size")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens is None:
        raise ModelError(f"neither {ARCHITECTURE}.vocab_size nor tokenizer.ggml.tokens is there")
    if not isinstance(tokens, Sequence) or isinstance(tokens, str):
        raise ModelError(
            f"metadata key tokenizer.ggml.tokens must be an array of strings, found {reprlib.repr(tokens)}"
        )
    return len(tokens)


def _mixers(keys: Keys, layers: int) -> tuple[Mixer, ...]:
    if keys.has("attention.recurrent_layers"):
        recurrent = keys.integers("attention.recurrent_layers")
        if len(recurrent) < layers:
            raise ModelError(
                f"{ARCHITECTURE}.attention.recurrent_layers must have {layers} entries, found {len(recurrent)}"
            )
        return tuple(Mixer.GDN if flag else Mixer.QSA for flag in recurrent[:layers])
    interval = keys.integer("full_attention_interval", default=4)
    return tuple(Mixer.QSA if (i + 1) % interval == 0 else Mixer.GDN for i in range(layers))


def _gdn(keys: Keys) -> Gdn:
    nk, nv, d = keys.integer("ssm.group_count"), keys.integer("ssm.time_step_rank"), keys.integer("ssm.state_size")
    inner = keys.integer("ssm.inner_size")
    if nv % nk:
        raise ModelError(f"{ARCHITECTURE}.ssm.time_step_rank {nv} must be a multiple of ssm.group_count {nk}")
    if inner != nv * d:
        raise ModelError(f"{ARCHITECTURE}.ssm.inner_size must be {nv * d} (heads x width), found {inner}")
    return Gdn(nk=nk, nv=nv, d=d, conv=keys.integer("ssm.conv_kernel", least=2))


def _qsa(keys: Keys) -> Qsa:
    nh, nkv = keys.integer("attention.head_count"), keys.integer("attention.head_count_kv")
    hd, vd = keys.integer("attention.key_length"), keys.integer("attention.value_length")
    budget = keys.integer("attention.indexer.top_k")
    ratios = {r for r in keys.integers("attention.compress_ratios") if r}
    if nh % nkv:
        raise ModelError(f"{ARCHITECTURE}.attention.head_count {nh} must be a multiple of head_count_kv {nkv}")
    if hd != vd:
        raise ModelError(f"{ARCHITECTURE}.attention.value_length must equal key_length {hd}, found {vd}")
    if len(ratios) != 1:
        raise ModelError(
            f"{ARCHITECTURE}.attention.compress_ratios must hold one ratio besides 0, found {sorted(ratios)}"
        )
    ratio = ratios.pop()
    if budget % ratio:
        raise ModelError(f"{ARCHITECTURE}.attention.indexer.top_k {budget} must be a multiple of the ratio {ratio}")
    return Qsa(
        nh=nh,
        nkv=nkv,
        hd=hd,
        ih=keys.integer("attention.indexer.head_count"),
        id=keys.integer("attention.indexer.key_length"),
        budget=budget,
        ratio=ratio,
    )


def _check_ratios(keys: Keys, mixers: tuple[Mixer, ...], ratio: int) -> None:
    found = keys.integers("attention.compress_ratios")
    expected = tuple(ratio if mixer is Mixer.QSA else 0 for mixer in mixers)
    if found[: len(mixers)] != expected:
        raise ModelError(f"{ARCHITECTURE}.attention.compress_ratios must be {list(expected)}, found {list(found)}")


def _rope(keys: Keys) -> Rope:
    dims = keys.integer("rope.dimension_count", least=2)
    t, h, w, _ = keys.integers("rope.dimension_sections", 4)
    if dims % 2 or t + h + w != dims // 2:
        raise ModelError(
            f"{ARCHITECTURE}.rope.dimension_sections {[t, h, w]} must add up to half of rope.dimension_count {dims}"
        )
    theta, kind = keys.number("rope.freq_base", above=1.0), keys.text("rope.scaling.type", "none")
    if kind == "none":
        return Rope(dims, theta, (t, h, w))
    if kind != "yarn":
        raise ModelError(f"{ARCHITECTURE}.rope.scaling.type is {kind!r}; supported: 'none', 'yarn'")
    scale = keys.number("rope.scaling.factor")
    if scale < 1:
        raise ModelError(f"{ARCHITECTURE}.rope.scaling.factor must be at least 1, found {scale}")
    return Rope(
        dims,
        theta,
        (t, h, w),
        scale=scale,
        original_context=keys.integer("rope.scaling.original_context_length"),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        attention=keys.number("rope.scaling.attn_factor", 1.0),
    )


def _moe(keys: Keys, blocks: int) -> Moe:
    E, topk = keys.integer("expert_count"), keys.integer("expert_used_count")
    if topk > E:
        raise ModelError(f"{ARCHITECTURE}.expert_used_count {topk} exceeds expert_count {E}")
    width = keys.integer_or_same("expert_feed_forward_length", blocks)
    return Moe(E=E, topk=topk, I=width, shared=keys.integer("expert_shared_feed_forward_length"))


def _ple(keys: Keys, mixers: tuple[Mixer, ...]) -> Ple:
    (layer,) = keys.integers("ple.layers", 1)
    if layer >= len(mixers) or mixers[layer] is not Mixer.GDN:
        raise ModelError(f"{ARCHITECTURE}.ple.layers must name a recurrent layer, found {layer}")
    if keys.has("ple.image_token_id"):
        keys.integer("ple.image_token_id", least=0)
    n, heads = keys.integer("ple.ngram_size", least=2), keys.integer("ple.heads_per_ngram")
    count = (n - 1) * heads
    return Ple(
        layer=layer,
        n=n,
        heads=heads,
        width=keys.integer("embedding_length_per_layer_input"),
        conv=keys.integer("ple.conv_kernel", least=2),
        eos=keys.integer("ple.eos_token_id", least=0),
        multipliers=keys.integers("ple.layer_multipliers", n, least=1),
        offsets=keys.integers("ple.head_offsets", count),
        sizes=keys.integers("ple.head_vocab_sizes", count, least=1),
    )
