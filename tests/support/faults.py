"""A `pread` that does what disks and file systems do on bad days, as compiled code calls it."""

import ctypes
import errno
import os
from collections.abc import Callable

from strata.memory.reads import pread

_KIND = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, use_errno=True)
_KEPT: list[object] = []  # threads know the address alone


class Faulty:
    """Calls `decide(number of the call, descriptor, bytes, offset)`: bytes to read at most, or a negated error number.

    Attributes:
        functions: what `Readers` takes.
        calls: how many there were.
    """

    def __init__(self, decide: Callable[[int, int, int, int], int]) -> None:
        self.calls = 0

        def read(file: int, address: int, nbytes: int, offset: int) -> int:
            self.calls += 1
            most = decide(self.calls, file, nbytes, offset)
            if most < 0:
                ctypes.set_errno(-most)
                return -1
            try:
                blocks = min(-(-most // 65536) * 65536, nbytes)  # the system reads whole ones
                return min(most, os.preadv(file, [(ctypes.c_uint8 * blocks).from_address(address)], offset))
            except OSError as error:
                ctypes.set_errno(error.errno or errno.EIO)
                return -1

        function = _KIND(read)
        _KEPT.append(function)
        self.functions = (ctypes.cast(function, ctypes.c_void_p).value or 0, pread.system()[1])
