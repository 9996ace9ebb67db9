"""A GPU's memory in chunks, by the driver's calls for virtual memory, which torch has no door to.

Constants and structures are those of cuda.h (CUDA 10.2 and later); `tests/ops/tiers/test_cuda.py` holds them to it.
"""

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_int, c_size_t, c_ubyte, c_ulonglong, c_ushort, c_void_p
from typing import Any

import torch
from torch import Tensor

from strata.errors import TierError

CHUNK = 8 << 20
"""Bytes of a chunk: 20 GB are 2,400 of them, and a class of slots wastes less than one."""

PINNED, ON_DEVICE, READ_WRITE, LEAST = 1, 1, 3, 0
OUT_OF_MEMORY = 2
HAS_VIRTUAL_MEMORY = 102


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", c_int), ("id", c_int))


class Flags(ctypes.Structure):
    """The flags in CUmemAllocationProp."""

    _fields_ = (
        ("compressionType", c_ubyte),
        ("gpuDirectRDMACapable", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    )


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("requestedHandleTypes", c_int),
        ("location", Location),
        ("win32HandleMetaData", c_void_p),
        ("allocFlags", Flags),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", c_int))


CALLS: dict[str, tuple[Any, ...]] = {
    "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuMemGetAllocationGranularity": (c_void_p, c_void_p, c_int),
    "cuMemAddressReserve": (c_void_p, c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemAddressFree": (c_ulonglong, c_size_t),
    "cuMemCreate": (c_void_p, c_size_t, c_void_p, c_ulonglong),
    "cuMemRelease": (c_ulonglong,),
    "cuMemMap": (c_ulonglong, c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemUnmap": (c_ulonglong, c_size_t),
    "cuMemSetAccess": (c_ulonglong, c_size_t, c_void_p, c_size_t),
}
"""Calls of the driver and what each takes; all return a number, 0 where all is well."""

CHANGES = frozenset({"cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree"})
"""Calls that do not fail where all is well: after one that does, nobody knows what lies where."""


class CudaChunks:
    """Memory of a GPU whose context torch has made. See `strata.ops.tiers.chunks.Chunks`.

    Args:
        device: which.
        driver: libcuda; None for the system's.

    Raises:
        TierError: the driver has no such calls, or the device cannot do it.
    """

    def __init__(self, device: torch.device, driver: Any = None) -> None:
        self._number = torch.cuda.current_device() if device.index is None else device.index
        self._calls = loaded(CALLS, "virtual memory") if driver is None else driver
        able = c_int(0)
        self._call("cuDeviceGetAttribute", byref(able), HAS_VIRTUAL_MEMORY, self._number)
        if not able.value:
            raise TierError("this GPU, or its driver, cannot move memory behind addresses that stay")
        where = Location(ON_DEVICE, self._number)
        self._kind = Properties(PINNED, 0, where, None, Flags())
        self._access = Access(where, READ_WRITE)
        least = c_size_t(0)
        self._call("cuMemGetAllocationGranularity", byref(least), byref(self._kind), LEAST)
        self.size = -(-CHUNK // least.value) * least.value

    def free(self) -> int:
        """See `Chunks.free`; what torch keeps for later is given back first."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._number)[0]

    def reserve(self, nbytes: int) -> int:
        """See `Chunks.reserve`."""
        address = c_ulonglong(0)
        self._call("cuMemAddressReserve", byref(address), nbytes, 0, 0, 0)
        return address.value

    def take(self) -> int:
        """See `Chunks.take`."""
        chunk = c_ulonglong(0)
        self._call("cuMemCreate", byref(chunk), self.size, byref(self._kind), 0)
        return chunk.value

    def drop(self, chunk: int) -> None:
        """See `Chunks.drop`."""
        self._call("cuMemRelease", chunk)

    def put(self, address: int, chunk: int) -> None:
        """See `Chunks.put`."""
        self._call("cuMemMap", address, self.size, 0, chunk, 0)
        self._call("cuMemSetAccess", address, self.size, byref(self._access), 1)

    def lift(self, address: int) -> None:
        """See `Chunks.lift`."""
        self._call("cuMemUnmap", address, self.size)

    def tensor(self, address: int, nbytes: int, owner: object) -> Tensor:
        """See `Chunks.tensor`."""
        return torch.as_tensor(_Foreign(address, nbytes, owner), device=torch.device("cuda", self._number))

    def end(self, address: int, nbytes: int, chunks: list[int]) -> None:
        """See `Chunks.end`."""
        torch.cuda.synchronize(self._number)
        while chunks:
            self.lift(address + (len(chunks) - 1) * self.size)
            self.drop(chunks.pop())
        self._call("cuMemAddressFree", address, nbytes)

    def _call(self, name: str, *values: Any) -> None:
        status = getattr(self._calls, name)(*values)
        if status == OUT_OF_MEMORY:
            raise torch.OutOfMemoryError(f"CUDA out of memory: {name} found no {self.size} bytes")
        if status and name in CHANGES:
            raise RuntimeError(f"CUDA error: the driver refused {name} (error {status})")
        if status:
            raise TierError(f"the GPU's driver refused {name} (error {status})")


class _Foreign:
    """Memory that is not torch's, as it takes such; a tensor there keeps it."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def loaded(calls: Mapping[str, tuple[Any, ...]], purpose: str) -> Any:
    """The driver's library.

    Args:
        calls: names, and what each takes; all return a number.
        purpose: what they are for.

    Raises:
        TierError: it is not there, or too old.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        for name, takes in calls.items():
            call = getattr(driver, name)
            call.argtypes, call.restype = takes, c_int
    except (OSError, AttributeError) as error:
        raise TierError(f"the GPU's driver has no calls for {purpose}: {error}") from error
    return driver
