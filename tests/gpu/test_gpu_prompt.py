"""Prompt passes on a GPU: no tile, no cut and no record can be seen in the bytes."""

from dataclasses import replace

import pytest
import torch
import triton

from strata import pebble
from strata.gguf import open_model
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import KINDS, Pool
from strata.ops.gpu.upload import Upload
from strata.ops.matvec.triton import arch
from strata.ops.prompt import product
from strata.ops.prompt.tiles import dense_tile, exact_tile, low_tile, mean_tile

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda")
ROOMS = (16, 32, 64, 128, 512, 4096)


def _half(*shape: int) -> torch.Tensor:
    """Numbers of several magnitudes, so that sums cancel."""
    random = torch.Generator().manual_seed(sum(shape))
    spread = torch.randint(-3, 4, (shape[0], 1), generator=random)
    return (torch.randn(*shape, generator=random) * 2.0**spread).half().to(DEVICE)


@pytest.mark.parametrize("width", [2560, 6144])
def test_products_have_one_set_of_bytes(width):
    """Every tile of the table, and one row among others or alone."""
    card, w, x, found = arch(DEVICE), _half(640, width), _half(4096, width), []
    for room in ROOMS:
        for first in (0, 7):
            tile, out = dense_tile(card, room), torch.zeros(room, 640, device=DEVICE)
            counts = torch.tensor([room - first], dtype=torch.int32, device=DEVICE)
            product.product[(triton.cdiv(room, tile.rows) * triton.cdiv(640, tile.columns),)](
                x[first:], w, counts, out, 640, width, EVEN=True, **tile.constants(), **tile.options()
            )
            found.append(out[7 - first])
    assert all(torch.equal(found[0], one) for one in found)


def test_the_router_has_one_set_of_bytes():
    card, found = arch(DEVICE), []
    x, x_rest, w, w_rest = _half(4096, 2560), _half(4096, 2560), _half(513, 2560), _half(513, 2560)
    for room in ROOMS:
        tile, out = exact_tile(card, room), torch.zeros(room, 513, device=DEVICE)
        counts = torch.tensor([room], dtype=torch.int32, device=DEVICE)
        product.exact[(triton.cdiv(room, tile.rows) * triton.cdiv(513, tile.columns),)](
            x, x_rest, w, w_rest, counts, out, 513, 2560, EVEN=True, **tile.constants(), **tile.options()
        )
        found.append(out[5])
    assert all(torch.equal(found[0], one) for one in found)


def test_reads_of_the_streams_have_one_set_of_bytes():
    card, narrow, means = arch(DEVICE), [], []
    xn, down, up, low = _half(4096, 10240), _half(324, 10240), _half(10240, 320), _half(4096, 320)
    for room in ROOMS:
        counts = torch.tensor([room], dtype=torch.int32, device=DEVICE)
        out = torch.zeros(room, 320, dtype=torch.float16, device=DEVICE)
        strengths, tile = torch.zeros(room, 4, device=DEVICE), low_tile(card, room)
        product.low_rank[(triton.cdiv(room, tile.rows) * triton.cdiv(324, tile.columns),)](
            xn, down, counts, out, strengths, 320, 10240, S=4, EVEN=True, **tile.constants(), **tile.options()
        )
        narrow.append(torch.cat((out[9].float(), strengths[9])))
        mean, rest = torch.zeros(2, room, 2560, dtype=torch.float16, device=DEVICE)
        tile = mean_tile(card, room)
        product.gated_mean[(triton.cdiv(room, tile.rows) * triton.cdiv(2560, tile.columns),)](
            low, up, xn, counts, mean, rest, H=2560, S=4, R=320, EVEN=True, **tile.constants(), **tile.options()
        )
        means.append(torch.cat((mean[9], rest[9])))
    assert all(torch.equal(narrow[0], one) for one in narrow)
    assert all(torch.equal(means[0], one) for one in means)


@pytest.fixture(scope="module", params=[*((name, "bf16") for name in pebble.VARIANTS), ("iq3", "q8")], ids="-".join)
def net(request):
    name, kv = request.param
    directory = open_model(pebble.path(name))
    config = replace(load_config(directory.metadata), mtp=False)
    pool = Pool(config, DEVICE, slots=8, cells=8192, kv=KINDS[kv])
    return Network(config, Upload(DEVICE).all(load_weights(directory, config)), GpuOps(config, pool, DEVICE))


@torch.inference_mode()
@pytest.mark.parametrize(
    "cuts", [(640,), (64, 128), (256, 512, 1024), (512, 576, 640, 704), tuple(range(64, 1100, 64))]
)
def test_cuts_and_records_cannot_be_seen(net, cuts):
    """Short passes are recorded when they come again; long ones are not; experts get other tiles."""
    ids = torch.randint(5, net.config.V - 5, (1100,), generator=torch.Generator().manual_seed(1)).tolist()
    whole, parts = net.new_state(), net.new_state()
    expected, got, first = net.read(whole, ids), [], 0
    for last in (*cuts, len(ids)):
        got.append(net.read(parts, ids[first:last]))
        first = last
    different = (torch.cat(got) != expected).any(1).nonzero()[:, 0].tolist()
    assert not different, f"{len(different)} rows differ, the first is {different[0]}"
    for (name, a), (_, b) in zip(whole.tensors(), parts.tensors(), strict=True):
        assert torch.equal(a, b), name
