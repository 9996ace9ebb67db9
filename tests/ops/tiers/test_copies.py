"""Which copies bring experts, and how the driver is asked for them. No GPU is needed."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

import triton

from strata.ops.tiers import copies
from strata.ops.tiers.copies import CopyEngine, Plain, Rows

HEADER = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
NONE = np.zeros(0, np.int64)
SIZES = (48, 32, 16)


class Copy(NamedTuple):
    source: int
    at: int
    width: int
    rows: int


def runs(*given):
    return [Copy(*one) for one in copies.runs(*given).tolist()]


def listed(found):
    return np.array(found, np.int64).reshape(-1, 4)


def _stacked(experts, count=20, first=1 << 20):
    """Addresses in a file: all gates, all ups, all downs, with something between."""
    starts = first + np.array([0, 48 * count + 64, 80 * count + 128])
    return starts + np.array(experts)[:, None] * np.array(SIZES)


def test_neighbours_are_one_copy_for_each_matrix():
    a = 1 << 20
    assert runs(_stacked(range(3, 9)), range(6), SIZES, NONE) == [
        Copy(a + 3 * 48, 0, 48, 6),
        Copy(a + 20 * 48 + 64 + 3 * 32, 48, 32, 6),
        Copy(a + 20 * 80 + 128 + 3 * 16, 80, 16, 6),
    ]


def test_hits_between_them_part_them():
    found = runs(_stacked([2, 3, 5, 9, 10]), range(5), SIZES, NONE)
    assert [(copy.at, copy.width, copy.rows) for copy in found[:3]] == [(0, 48, 2), (192, 48, 1), (288, 48, 2)]
    assert len(found) == 9


def test_experts_that_lie_as_they_land_are_one_copy():
    """As the disk's do: parts one after the other, wherever slots are."""
    firsts = np.array([9600, 9696, 5000])
    addresses = firsts[:, None] + np.array([0, 48, 80])
    assert runs(addresses, [0, 1, 2], SIZES, NONE) == [Copy(9600, 0, 96, 2), Copy(5000, 192, 96, 1)]


memory = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.permutations(range(n)), st.lists(st.integers(0, 15), unique=True, min_size=n, max_size=n),
        st.booleans(), st.lists(st.integers(0, 12 * 96 + 128), max_size=3),
    )
)  # fmt: skip


@settings(deadline=None)  # the first call compiles
@given(memory)
def test_every_byte_lands_where_it_should_and_no_copy_reaches_over_a_cut(case):
    order, rows, together, cuts = case
    count = len(order)
    raw = np.random.default_rng(1).integers(0, 255, 12 * 96 + 128, np.uint8)
    base = raw.ctypes.data
    addresses = _stacked(order, count, base)
    if together:
        addresses = base + 96 * np.array(order)[:, None] + np.array([0, 48, 80])
    rows = sorted(rows) if order[0] % 2 else rows
    at = base + np.array(sorted(cuts), np.int64)
    found = runs(addresses, rows, SIZES, at)
    there = torch.full((16 * 96,), 7, dtype=torch.uint8)
    Plain().run(listed(found), there, 96)
    expected = np.full((16, 96), 7, np.uint8)
    for row, parts in zip(rows, addresses - base, strict=True):
        pieces = [raw[at : at + size] for at, size in zip(parts, SIZES, strict=True)]
        expected[row] = np.concatenate(pieces)
    assert (there.numpy().reshape(16, 96) == expected).all()
    assert not any(one.source < cut < one.source + one.width * one.rows for one in found for cut in at.tolist())
    assert sum(one.width * one.rows for one in found) == 96 * count


class Driver:
    """Does what it is asked for in the processor's memory, and says so."""

    def __init__(self, status=0):
        self.status, self.asked = status, []
        self.cuMemcpy2DAsync_v2 = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self._copy)

    def _copy(self, rows, stream):
        one = ctypes.cast(rows, ctypes.POINTER(Rows)).contents
        assert (one.srcMemoryType, one.dstMemoryType) == (1, 2)
        assert not any((one.srcXInBytes, one.srcY, one.dstXInBytes, one.dstY, one.srcArray, one.dstArray))
        for row in range(one.Height):
            ctypes.memmove(one.dstDevice + row * one.dstPitch, one.srcHost + row * one.srcPitch, one.WidthInBytes)
        self.asked.append(stream)
        return self.status


@pytest.fixture
def stream(monkeypatch):
    """A stream of no GPU."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: type("Stream", (), {"cuda_stream": 5}))


@pytest.mark.usefixtures("stream")
def test_the_driver_is_asked_for_the_same_copies():
    raw = np.arange(20 * 96 + 128, dtype=np.uint32).astype(np.uint8)
    addresses = _stacked([1, 2, 3, 7, 11, 12], 20, raw.ctypes.data)
    found = runs(addresses, range(6), SIZES, NONE)
    here, there = (torch.zeros(6 * 96, dtype=torch.uint8) for _ in range(2))
    Plain().run(listed(found), here, 96)
    driver = Driver()
    CopyEngine(torch.device("cuda"), driver).run(listed(found), there, 96)
    assert torch.equal(here, there)
    assert driver.asked == [5] * 9


@pytest.mark.usefixtures("stream")
def test_a_refused_copy_is_said():
    raw, there = np.zeros(96, np.uint8), torch.zeros(96, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="refused cuMemcpy2DAsync_v2 \\(error 1\\)"):
        CopyEngine(torch.device("cuda"), Driver(1)).run(listed([Copy(raw.ctypes.data, 0, 96, 1)]), there, 96)


@pytest.mark.skipif(
    shutil.which("cc") is None or not (HEADER / "cuda.h").is_file(), reason="needs a C compiler and Triton's cuda.h"
)
def test_the_structure_is_that_of_the_header(tmp_path):
    """And the call's name is that which programs are given that use the header."""
    names = [name for name, _ in Rows._fields_]
    lines = ["sizeof(CUDA_MEMCPY2D)", *(f"offsetof(CUDA_MEMCPY2D, {name})" for name in names)]
    lines += ["(size_t)CU_MEMORYTYPE_HOST", "(size_t)CU_MEMORYTYPE_DEVICE", "sizeof(CUmemorytype)"]
    told = "".join(f'printf("%zu\\n", {line});' for line in lines)
    name = 'printf("%s", NAME(cuMemcpy2DAsync));'
    source = tmp_path / "told.c"
    source.write_text(
        "#include <cuda.h>\n#include <stddef.h>\n#include <stdio.h>\n#define TEXT(x) #x\n#define NAME(x) TEXT(x)\n"
        f"int main(void) {{ {told} {name} }}\n"
    )
    subprocess.run(["cc", f"-I{HEADER}", str(source), "-o", str(tmp_path / "told")], check=True)
    found = subprocess.run([str(tmp_path / "told")], check=True, capture_output=True, text=True).stdout.split()
    wanted = [ctypes.sizeof(Rows), *(getattr(Rows, name).offset for name in names)]
    wanted += [copies.FROM_HOST, copies.TO_DEVICE, 4]
    assert list(map(int, found[:-1])) == wanted
    assert found[-1] == copies.CALL
    assert "CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *pCopy, CUstream hStream);" in (HEADER / "cuda.h").read_text()
