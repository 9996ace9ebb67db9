"""Random blocks of every type, with scale fields under control."""

from functools import cache

import numpy as np

from strata.formats import BlockType, by_name, dequantise

# Where a block keeps its float16 scale (gguf-tensors spec, section 6), and where a second one, with the multiple of the
# first that brings the mean of random codes to zero: -7.5 d for codes 0..15 of Q4_1, and so on.
SCALE_AT = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q1_0", "Q2_0", "Q2_0_128"), 0),
    **dict.fromkeys(("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"), 0),
    "Q2_K": 80,
    "Q3_K": 108,
    "Q6_K": 208,
    "TQ1_0": 52,
    "TQ2_0": 64,
}
SECOND_AT = {"Q4_1": (2, -7.5), "Q5_1": (2, -15.5), "Q2_K": (82, 1.5), "Q4_K": (2, 7.5), "Q5_K": (2, 15.5)}
HALF_SCALED = (*SCALE_AT, "IQ1_M")

_E2M1_RMS = np.sqrt(np.mean(np.square([0, 1, 2, 3, 4, 6, 8, 12])))  # doubled values, all codes equally likely


def set_scales(name: str, blocks: np.ndarray, scale: np.ndarray, second: np.ndarray | None = None) -> None:
    """Write float16 scales into ``uint8 [n, bytes]`` in place; ``second`` only where the type has two."""
    bits = np.asarray(scale, dtype=np.float16).view(np.uint16)
    if name == "IQ1_M":
        words = blocks[:, 48:56].view("<u2")
        for i in range(4):
            words[:, i] = (words[:, i] & 0x0FFF) | (((bits >> (4 * i)) & 15) << 12)
        return
    at = SCALE_AT[name]
    blocks[:, at : at + 2] = bits.astype("<u2").view(np.uint8).reshape(-1, 2)
    if name in SECOND_AT and second is not None:
        at = SECOND_AT[name][0]
        blocks[:, at : at + 2] = np.asarray(second, dtype="<f2").view(np.uint8).reshape(-1, 2)


def random_blocks(
    block_type: BlockType | str, shape: tuple[int, ...], rng: np.random.Generator, scale: float = 0.07
) -> np.ndarray:
    """Blocks with random codes whose weights are finite and have a standard deviation of about ``scale``.

    Scales differ from block to block, and half of them are negative where the type allows it.

    Args:
        block_type: or its name.
        shape: of the weights, width last.
        rng: source of everything random.
        scale: standard deviation wanted; 0.001 to 10 fits every type.

    Returns:
        ``uint8 [*shape[:-1], row_bytes]``.
    """
    kind = by_name(block_type) if isinstance(block_type, str) else block_type
    row_bytes = kind.row_bytes(shape[-1])
    n = int(np.prod(shape[:-1])) * row_bytes // kind.bytes
    return _random(kind.name, n, rng, scale).reshape(*shape[:-1], row_bytes)


def _random(name: str, n: int, rng: np.random.Generator, scale: float) -> np.ndarray:
    if name in {"F32", "F16", "BF16"}:
        values = (rng.standard_normal((n, 1)) * scale).astype("<f4")
        if name == "BF16":
            return values.view(np.uint8)[:, 2:].copy()
        return values.astype("<f2" if name == "F16" else "<f4").view(np.uint8)
    blocks = rng.integers(0, 256, (n, by_name(name).bytes), dtype=np.uint8)
    if name == "MXFP4":
        # Two neighbouring exponents, mixed so that the mean square comes out right.
        power = np.log2(scale / _E2M1_RMS)
        low = np.floor(power)
        share = (4.0 ** (power - low) - 1) / 3
        blocks[:, 0] = 128 + low + (rng.random(n) < share)
    elif name == "NVFP4":
        codes = np.arange(1, 127)
        exponent, fraction = codes >> 3, codes & 7
        values = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0)) / 2
        wanted = _spread(rng, (n, 4)) * scale / _E2M1_RMS
        blocks[:, :4] = codes[np.abs(values - wanted[..., None]).argmin(axis=-1)]
    else:
        d = _spread(rng, n) * rng.choice([-1, 1], n) * scale / _unit_deviation(name)
        set_scales(name, blocks, d, d * SECOND_AT.get(name, (0, 0))[1])
    return blocks


def _spread(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Factors between about 0.5 and 1.5 whose root mean square is 1."""
    return rng.uniform(0.5, 1.5, shape) / np.sqrt(13 / 12)


@cache
def _unit_deviation(name: str) -> float:
    """Root mean square of the weights of random codes under a scale of one."""
    kind = by_name(name)
    blocks = np.random.default_rng(0).integers(0, 256, (4096, kind.bytes), dtype=np.uint8)
    ones = np.ones(len(blocks))
    set_scales(name, blocks, ones, ones * SECOND_AT.get(name, (0, 0))[1])
    return float(np.sqrt(np.mean(np.square(dequantise(kind, blocks), dtype=np.float64))))
