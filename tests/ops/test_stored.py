"""Products and experts of stored matrices, against the judge of the quantised order."""

import numpy as np
import pytest
import torch

from strata.experts import judge
from strata.experts.errors import KernelError
from strata.formats import by_name, dequantise
from strata.model import weights
from strata.model.ops import Route
from strata.model.weights import Quantised
from strata.ops import workers
from strata.ops.linear.stored import linear
from strata.ops.moe.reference import experts, shared_expert
from support.blocks import random_blocks

H, INNER, E = 256, 64, 6


@pytest.fixture(params=[1, 3], ids="{} threads".format)
def _threads(request):
    before = workers.current().cpus
    workers.use((None,) * request.param)
    yield
    workers.use(before)


def _matrix(name, shape, rng, scale=None):
    return Quantised(by_name(name), random_blocks(name, shape, rng), scale)


def _judge(w, e=...):
    scale = None if w.scale is None else w.scale.reshape(-1)[0 if w.scale.size == 1 else e]
    return judge.Matrix(w.type, w.raw if e is ... else w.raw[e], scale)


def _tensor(x):
    return torch.from_numpy(x)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("rows", [1, 8, 70])
@pytest.mark.parametrize("name", ["Q8_0", "Q5_K", "IQ3_S", "NVFP4", "BF16", "F32"])
def test_linear_has_the_judges_bytes(name, rows):
    rng = np.random.default_rng(rows)
    w = _matrix(name, (1111, H), rng, np.float32([1.7]) if name == "NVFP4" else None)
    x = rng.standard_normal((rows, H)).astype(np.float32)
    found = linear(_tensor(x), w)
    if name in {"BF16", "F32"}:
        expected = judge.float_product(dequantise(w.type, w.raw), x)
    else:
        expected = judge.matrix_product(_judge(w), *judge.quantise_rows(x))
    assert found.numpy().tobytes() == expected.tobytes()
    assert linear(_tensor(np.repeat(x, 2, axis=1))[:, ::2], w).equal(found)  # rows that do not lie together


def test_a_float_matrix_gives_the_bytes_of_its_tensor():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((40, H)).astype(np.float32)
    x = _tensor(rng.standard_normal((3, H)).astype(np.float32))
    assert linear(x, Quantised(by_name("F32"), w.view(np.uint8))).equal(linear(x, _tensor(w)))


@pytest.mark.parametrize("x", [torch.zeros(2, 64), torch.zeros(0, H), torch.zeros(H), torch.zeros(1, H).double()])
def test_operands_that_do_not_fit_are_refused(x):
    with pytest.raises(KernelError, match=r"a matrix \[4, 256\] does not go with"):
        linear(x, _matrix("Q8_0", (4, H), np.random.default_rng(0)))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_experts_and_the_shared_one_have_the_judges_bytes(rows):
    rng = np.random.default_rng(rows)
    scale = rng.uniform(0.5, 2, E).astype(np.float32)
    router = _tensor(rng.standard_normal((E, H)).astype(np.float32))
    gate, up = _matrix("IQ3_S", (E, INNER, H), rng), _matrix("IQ2_XS", (E, INNER, H), rng)
    down = _matrix("NVFP4", (E, H, INNER), rng, scale)
    shared = [_matrix("Q8_0", shape, rng) for shape in ((INNER, H), (INNER, H), (H, INNER))]
    layer = weights.Moe(router, gate, up, down, _tensor(rng.standard_normal(H).astype(np.float32) / 16), *shared)
    x = rng.standard_normal((rows, H)).astype(np.float32)
    route = np.stack([rng.permutation(E)[:3] for _ in range(rows)])
    p = rng.random((rows, 3)).astype(np.float32)
    q, s = judge.quantise_rows(x)
    each = [
        [judge.expert(*(_judge(w, e) for w in (gate, up, down)), q[t : t + 1], s[t : t + 1])[0] for e in route[t]]
        for t in range(rows)
    ]
    found = experts(_tensor(x), Route(_tensor(route), _tensor(p)), layer)
    assert found.numpy().tobytes() == judge.combine(np.array(each), p).tobytes()

    row = judge.expert(*(_judge(w) for w in shared), q, s)
    strength = torch.sigmoid(linear(_tensor(x), layer.shared_weight[None])).numpy()
    got = shared_expert(_tensor(x), layer).numpy()
    # The sigmoid is torch's, which rounds by the place in a tensor: its own error is 2 units at most.
    np.testing.assert_allclose(got, strength * row, rtol=4 * 2.0**-24, atol=0)


def test_parts_of_matrices():
    w = _matrix("Q8_0", (6, 8, 128), np.random.default_rng(0), np.arange(6, dtype=np.float32))
    assert (w.shape, w.outputs(slice(2, 5)).shape, w.inputs(slice(32, None)).shape) == (
        *((6, 8, 128), (6, 3, 128)),
        (6, 8, 96),
    )
    whole = dequantise(w.type, w.raw)
    for part, expected in ((w.outputs(slice(2, 5)), whole[:, 2:5]), (w.inputs(slice(32, None)), whole[..., 32:])):
        np.testing.assert_array_equal(dequantise(part.type, np.ascontiguousarray(part.raw)), expected)
        assert part.scale is w.scale


def test_a_thread_that_flushes_subnormals_is_refused():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        with pytest.raises(KernelError, match="flushes subnormal numbers"):
            workers.use((None, None))
    finally:
        torch.set_flush_denormal(False)
    assert workers.current().cpus == (None,)
