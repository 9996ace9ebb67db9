"""What a prompt pass holds at its worst moment, in the released shapes, against the arithmetic that plans with it."""

from dataclasses import replace

import pytest

pytest.importorskip("triton")

from strata.lab.synthetic.shapes import Synthetic
from strata.ops.gpu.size import live_bytes, widest, work_bytes
from support.launch import NATIVE

CONTEXT = 65536


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    if NATIVE:
        pytest.skip("counts without launching")
    from support.live import untouched

    network, c = untouched(tmp_path_factory.mktemp("released"), Synthetic(layers=4), CONTEXT)
    _pass(network, 64, 0)  # a first pass makes some things that stay, 6.6 MB
    return network, c


def _pass(network, rows: int, before: int) -> int:
    from support.live import counted

    network.ops._prompt.most = network.ops.pass_rows = rows
    network.ops._prompt._longest = rows  # what makes room is no pass

    def read() -> None:
        state = network.new_state()
        state.length = state.next_position = before
        network.read(state, [7] * rows)

    return counted(read)


@pytest.mark.parametrize("before", [0, 49152])
@pytest.mark.parametrize("rows", [512, 1024, 2048, 4096, 8192])
def test_a_pass_holds_what_is_planned(model, rows, before) -> None:
    network, c = model
    network.ops._prompt._matrices.reserve(widest(c))
    found = _pass(network, rows, before) + 2 * widest(c)
    planned = live_bytes(c, rows)
    assert found <= planned, "something is held that the plan does not know"
    # The plan has room for queries and scores behind a long text where these are not the worst.
    assert found >= planned * (0.8 if rows >= 2048 else 0.6)


def test_two_thousand_rows_are_what_they_were(model) -> None:
    """Bytes of a row: a new array of all pairs in float32 would add 102,400."""
    network, _ = model
    network.ops._prompt._matrices.reserve(widest(model[1]))
    grown = (_pass(network, 4096, 0) - _pass(network, 2048, 0)) / 2048
    assert grown == pytest.approx(120_700, rel=0.01)


def test_work_space_grows_with_rows_alone(model) -> None:
    """So that a plan can say how many rows some bytes are for."""
    _, c = model
    sizes = [work_bytes(c, tensor_cores=True, rows=rows) for rows in (512, 2048, 8192)]
    assert (sizes[1] - sizes[0]) * 4 == pytest.approx(sizes[2] - sizes[1], rel=1e-6)
    assert work_bytes(replace(c, context=1 << 18), tensor_cores=True) == sizes[1]
