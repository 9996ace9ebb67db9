"""Philox-4x64-10 in plain integers, from the paper (Salmon et al., SC 2011), to judge the draws by."""

MASK = (1 << 64) - 1


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The four words of one counter."""
    c, (k0, k1) = counter, key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = ((b >> 64) ^ c[1] ^ k0, b & MASK, (a >> 64) ^ c[3] ^ k1, a & MASK)
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & MASK, (k1 + 0xBB67AE8584CAA73B) & MASK
    return c
