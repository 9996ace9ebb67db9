"""Products and experts on the pool: the judge's bytes, whoever computes them."""

import numpy as np
import pytest

from strata.errors import FormatError
from strata.experts import judge
from strata.experts.compute import KERNEL_TYPES, Expert, Stored, experts, product
from strata.experts.errors import KernelError
from strata.experts.pool import Pool
from strata.formats import by_name, dequantise, quantise
from strata.model.weights import KEPT
from support.blocks import random_blocks

THREADS = (1, 2, 3, 8)


@pytest.fixture(scope="module")
def pools():
    """Pools of 1, 2, 3 and 8 threads on however many processors there are."""
    made = {threads: Pool((None,) * threads) for threads in THREADS}
    yield made
    for pool in made.values():
        pool.close()


def _expected(kind, raw, x, scale=1.0):
    if kind.name in {"F32", "BF16", "F16"}:
        return judge.float_product(dequantise(kind, raw), x) * np.float32(scale)
    return judge.matrix_product(judge.Matrix(kind, raw, np.float32(scale)), *judge.quantise_rows(x))


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "NVFP4", "IQ3_S", "Q6_K", "F16"])
def test_products_have_the_judges_bytes(name, threads, pools, extremes):
    """Large enough to be shared (a window), not whole parts, more rows than meet at once, and tiny."""
    kind, rng = by_name(name), np.random.default_rng([*name.encode()])
    for n, width, rows in ((1003, 512, 1), (301, 768, 21), (5, 256, 2), (64, 2560, 8)):
        raw = random_blocks(name, (n, width), rng)
        x = np.concatenate([extremes(width, rng), rng.standard_normal((13, width)).astype(np.float32)])[:rows]
        found = product(pools[threads], Stored(kind, raw, np.float32([0.3])), x)
        assert found.tobytes() == _expected(kind, raw, x, 0.3).tobytes(), (n, width, rows)


def _matrices(names, sizes, rng, scaled):
    """Gate, up and down of a layer, as stored and as the judge takes them: by expert."""
    count, inner, wide = sizes
    stored, judged = [], []
    for name, shape in zip(names, ((inner, wide), (inner, wide), (wide, inner)), strict=True):
        kind = by_name(name)
        raw = random_blocks(name, (count, *shape), rng)
        scale = rng.uniform(0.5, 2, count).astype(np.float32) if scaled else None
        stored.append(Stored(kind, raw, scale))
        judged.append([judge.Matrix(kind, raw[e], None if scale is None else scale[e]) for e in range(count)])
    return Expert(*stored), list(zip(*judged, strict=True))


MIXES = {
    "as in the public files": (("IQ3_XXS", "IQ3_XXS", "IQ4_NL"), (12, 64, 256), False),
    "up in another order than gate": (("IQ3_S", "Q8_0", "Q5_1"), (6, 96, 256), False),
    "a scale per expert": (("NVFP4", "NVFP4", "NVFP4"), (6, 128, 192), True),
    "rows that end inside a group": (("Q4_1", "Q4_1", "IQ4_NL"), (5, 160, 32), False),
}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("mix", MIXES)
def test_experts_have_the_judges_bytes(mix, threads, pools):
    names, sizes, scaled = MIXES[mix]
    rng = np.random.default_rng(7)
    layer, judged = _matrices(names, sizes, rng, scaled)
    for rows, topk in ((1, 3), (8, 4), (40, 3), (2, 1)):
        x = rng.standard_normal((rows, sizes[2])).astype(np.float32)
        route = np.stack([rng.permutation(sizes[0])[:topk] for _ in range(rows)])
        weights = rng.random((rows, topk)).astype(np.float32)
        q, s = judge.quantise_rows(x)
        each = [[judge.expert(*judged[e], q[t : t + 1], s[t : t + 1])[0] for e in route[t]] for t in range(rows)]
        found = experts(pools[threads], layer, x, route, weights)
        assert found.tobytes() == judge.combine(np.array(each), weights).tobytes(), (rows, topk)


def test_float_experts_keep_float_activations(pools):
    rng = np.random.default_rng(0)
    names, sizes = ("BF16", "F32", "F16"), (3, 48, 64)
    raws = [
        quantise(by_name(name), rng.standard_normal((3, *shape)).astype(np.float32) / 8)
        for name, shape in zip(names, ((48, 64), (48, 64), (64, 48)), strict=True)
    ]
    layer = Expert(*(Stored(by_name(name), raw) for name, raw in zip(names, raws, strict=True)))
    gate, up, down = (dequantise(by_name(name), raw) for name, raw in zip(names, raws, strict=True))
    x = rng.standard_normal((5, sizes[2])).astype(np.float32)
    route, weights = np.array([[0, 2], [1, 0], [2, 1], [0, 1], [1, 2]]), rng.random((5, 2)).astype(np.float32)

    def row(t, e):
        g, u = judge.float_product(gate[e], x[t : t + 1]), judge.float_product(up[e], x[t : t + 1])
        return judge.float_product(down[e], judge.silu(g) * u)[0]

    each = np.array([[row(t, e) for e in route[t]] for t in range(5)])
    found = experts(pools[3], layer, x, route, weights)
    assert found.tobytes() == judge.combine(each, weights).tobytes()


def test_parts_of_a_matrix_are_read_where_they_lie(pools):
    """Gate and up in one tensor: rows of an expert that do not begin where the expert before ends."""
    rng, kind = np.random.default_rng(1), by_name("Q8_0")
    both = random_blocks("Q8_0", (4, 2 * 32, 64), rng)
    down = random_blocks("Q8_0", (4, 64, 32), rng)
    apart = [np.ascontiguousarray(both[:, part]) for part in (slice(32), slice(32, None))]
    x = rng.standard_normal((3, 64)).astype(np.float32)
    route, weights = np.array([[3, 0], [1, 3], [2, 0]]), np.full((3, 2), 0.5, np.float32)

    def run(gate, up):
        return experts(pools[2], Expert(*(Stored(kind, raw) for raw in (gate, up, down))), x, route, weights)

    assert run(both[:, :32], both[:, 32:]).tobytes() == run(*apart).tobytes()


def test_the_loader_keeps_what_has_a_kernel():
    assert KEPT == KERNEL_TYPES


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"route": [[0, 4]]}, "experts 0 to 3"),
        ({"route": [[-1, 0]]}, "experts 0 to 3"),
        ({"x": np.zeros((1, 32), np.float32)}, r"x \[T, 64\]"),
        ({"weights": np.zeros((1, 3), np.float32)}, r"route \[T, k\]"),
        ({"down": (4, 96, 32)}, "do not fit together"),
        ({"down": (3, 64, 32)}, "do not fit together"),
    ],
)
def test_experts_that_do_not_fit_are_refused(change, words, pools):
    def stored(shape):
        return Stored(by_name("Q8_0"), np.zeros((*shape[:2], shape[2] // 32 * 34), np.uint8))

    layer = Expert(stored((4, 32, 64)), stored((4, 32, 64)), stored(change.get("down", (4, 64, 32))))
    x, weights = change.get("x", np.zeros((1, 64), np.float32)), change.get("weights", np.zeros((1, 2), np.float32))
    with pytest.raises(KernelError, match=words):
        experts(pools[1], layer, x, np.array(change.get("route", [[0, 1]])), weights)


def test_what_is_no_matrix_is_refused():
    for raw in (np.zeros(34, np.uint8), np.zeros((2, 0), np.uint8), np.zeros((2, 34), np.int8)):
        with pytest.raises(KernelError, match="a stored matrix is uint8"):
            Stored(by_name("Q8_0"), raw)
    with pytest.raises(KernelError, match="3 scales and rows of 34 bytes do not go with 2 matrices"):
        Stored(by_name("Q8_0"), np.zeros((2, 4, 34), np.uint8), np.ones(3, np.float32))
    with pytest.raises(FormatError, match="no kernel reads TQ1_0"):
        Stored(by_name("TQ1_0"), np.zeros((2, 54), np.uint8))
