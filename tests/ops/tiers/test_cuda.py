# ruff: noqa: N802  # the driver's names
"""The driver's calls for virtual memory: types against its header, their order against its rules. No GPU is needed."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

import triton

from strata.errors import RoomError, TierError
from strata.ops.tiers import cuda
from strata.ops.tiers.cuda import CudaChunks
from strata.ops.tiers.room import SlotRoom

HEADER = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
FIELDS = {
    "CUmemAllocationProp": (
        cuda.Properties, ("type", "requestedHandleTypes", "location", "win32HandleMetaData", "allocFlags")
    ),
    "CUmemLocation": (cuda.Location, ("type", "id")),
    "CUmemAccessDesc": (cuda.Access, ("location", "flags")),
}  # fmt: skip
VALUES = {
    "CU_MEM_ALLOCATION_TYPE_PINNED": cuda.PINNED,
    "CU_MEM_LOCATION_TYPE_DEVICE": cuda.ON_DEVICE,
    "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": cuda.READ_WRITE,
    "CU_MEM_ALLOC_GRANULARITY_MINIMUM": cuda.LEAST,
    "CUDA_ERROR_OUT_OF_MEMORY": cuda.OUT_OF_MEMORY,
    "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": cuda.HAS_VIRTUAL_MEMORY,
}
KINDS = {
    "CUdeviceptr": ctypes.c_ulonglong,
    "CUmemGenericAllocationHandle": ctypes.c_ulonglong,
    "CUdevice": ctypes.c_int,
}


@pytest.mark.skipif(
    shutil.which("cc") is None or not (HEADER / "cuda.h").is_file(), reason="needs a C compiler and Triton's cuda.h"
)
def test_types_and_numbers_are_those_of_the_header(tmp_path):
    wanted, lines = [], []
    for name, (kind, fields) in FIELDS.items():
        lines += [f"(size_t)sizeof({name})", *(f"offsetof({name}, {field})" for field in fields)]
        wanted += [ctypes.sizeof(kind), *(getattr(kind, field).offset for field in fields)]
    for name, value in VALUES.items():
        lines.append(f"(size_t){name}")
        wanted.append(value)
    for name, kind in KINDS.items():
        lines.append(f"sizeof({name})")
        wanted.append(ctypes.sizeof(kind))
    told = "".join(f'printf("%zu\\n", {line});' for line in lines)
    source = tmp_path / "told.c"
    source.write_text(f"#include <cuda.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{ {told} }}\n")
    subprocess.run(["cc", f"-I{HEADER}", str(source), "-o", str(tmp_path / "told")], check=True)
    found = subprocess.run([str(tmp_path / "told")], check=True, capture_output=True, text=True).stdout.split()
    assert list(map(int, found)) == wanted
    calls = (HEADER / "cuda.h").read_text()
    for name, takes in cuda.CALLS.items():
        begin = calls.index(f"CUDAAPI {name}(") + len(f"CUDAAPI {name}(")
        assert calls[begin : calls.index(");", begin)].count(",") + 1 == len(takes), name


class Driver:
    """Keeps the driver's rules: whole granules, access before use, nothing mapped twice, nothing forgotten."""

    def __init__(self, granules=100, able=1, granule=3 << 20):
        self.granules, self.able, self.granule = granules, able, granule
        self.chunks: dict[int, int] = {}
        self.mapped: dict[int, int] = {}
        self.open: set[int] = set()
        self.ranges: dict[int, int] = {}
        self._next = 1 << 40

    def _number(self):
        self._next += 1 << 36
        return self._next

    def cuDeviceGetAttribute(self, out, which, device):
        assert (which, device) == (102, 0)
        out._obj.value = self.able
        return 0

    def cuMemGetAllocationGranularity(self, out, kind, which):
        assert (kind._obj.type, kind._obj.location.type, kind._obj.location.id, which) == (1, 1, 0, 0)
        out._obj.value = self.granule
        return 0

    def cuMemAddressReserve(self, out, nbytes, alignment, at, flags):
        assert nbytes % self.granule == alignment == at == flags == 0
        out._obj.value = self._number()
        self.ranges[out._obj.value] = nbytes
        return 0

    def cuMemAddressFree(self, at, nbytes):
        assert self.ranges.pop(at) == nbytes
        assert not any(at <= one < at + nbytes for one in self.mapped)
        return 0

    def cuMemCreate(self, out, nbytes, kind, flags):
        assert nbytes % self.granule == flags == 0 < kind._obj.type
        if len(self.chunks) * nbytes // self.granule >= self.granules:
            return cuda.OUT_OF_MEMORY
        out._obj.value = self._number()
        self.chunks[out._obj.value] = nbytes
        return 0

    def cuMemRelease(self, chunk):
        assert chunk not in self.mapped.values()
        del self.chunks[chunk]
        return 0

    def cuMemMap(self, at, nbytes, offset, chunk, flags):
        assert offset == flags == 0 == at % 1
        assert self.chunks[chunk] == nbytes
        assert any(first <= at and at + nbytes <= first + long for first, long in self.ranges.items())
        assert not any(one < at + nbytes and at < one + nbytes for one in self.mapped)
        assert chunk not in self.mapped.values()
        self.mapped[at] = chunk
        return 0

    def cuMemUnmap(self, at, nbytes):
        assert self.chunks[self.mapped.pop(at)] == nbytes
        self.open.discard(at)
        return 0

    def cuMemSetAccess(self, at, nbytes, access, count):
        assert (access._obj.location.type, access._obj.location.id, access._obj.flags, count) == (1, 0, 3, 1)
        assert self.chunks[self.mapped[at]] == nbytes
        self.open.add(at)
        return 0


@pytest.fixture
def chunks(monkeypatch):
    """Of a device that is none: tensors there are others."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10 << 30, 20 << 30))

    class Made(CudaChunks):
        def tensor(self, address, nbytes, owner):
            found = torch.empty(nbytes, dtype=torch.uint8)
            assert address in self._calls.open
            found.untyped_storage().owner = owner
            return found

    return lambda driver: Made(torch.device("cuda:0"), driver)


def test_slots_go_and_come_by_the_drivers_rules(chunks):
    driver = Driver(granules=30)
    room = SlotRoom(chunks(driver), [1 << 20, 2 << 20], [64, 16], [20, 0])
    size = 9 << 20  # three granules: the least multiple from 8 MB on
    assert {*driver.chunks.values()} == {size}
    assert room.nbytes == len(driver.chunks) * size == 4 * size
    for slots in ((64, 0), (0, 16), (10, 10), (0, 0), (30, 3)):
        room.set(slots)
        assert driver.open == set(driver.mapped)
        assert len(driver.mapped) == len(driver.chunks) == room.nbytes // size
    before = dict(driver.mapped)
    with pytest.raises(RoomError, match="cuMemCreate found no"):
        room.set((64, 16))
    assert (driver.mapped, len(driver.chunks)) == (before, len(before))
    arrays = room.arrays
    del room
    assert driver.chunks  # who has the arrays, has the memory
    del arrays


def test_memory_goes_back_when_the_last_one_has_no_use_for_it(chunks):
    driver = Driver()
    room = SlotRoom(chunks(driver), [1 << 20], [64], [20])
    del room
    assert (driver.chunks, driver.mapped, driver.ranges) == ({}, {}, {})


def test_a_device_that_cannot_do_it_says_so(chunks):
    with pytest.raises(TierError, match="cannot move memory behind addresses"):
        chunks(Driver(able=0))


def test_a_call_that_fails_is_named(chunks):
    driver = Driver()
    made = chunks(driver)
    driver.cuMemMap = lambda *_: 1
    with pytest.raises(RuntimeError, match=r"CUDA error: the driver refused cuMemMap \(error 1\)"):
        SlotRoom(made, [1 << 20], [4], [4])


def test_without_a_driver_there_are_no_chunks(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(TierError, match="no calls for virtual memory"):
        CudaChunks(torch.device("cuda:0"))
