"""What CUDA keeps of a GPU's memory for the stacks of threads."""

from ctypes import byref, c_int, c_size_t, c_void_p
from typing import Any

import torch

from strata.errors import TierError
from strata.ops.tiers.cuda import loaded

STACK_SIZE, USUAL = 0, 1024
"""CU_LIMIT_STACK_SIZE, and its bytes where nobody has asked for others."""

_CALLS: dict[str, tuple[Any, ...]] = {"cuCtxGetLimit": (c_void_p, c_int), "cuCtxSetLimit": (c_int, c_size_t)}


def small_stacks(device: torch.device) -> bool:
    """From now on a GPU keeps no more memory for stacks than kernels need.

    CUDA sets aside 1 KB for every thread that the device can hold at a time, 277 MB on an H200 and 201 on a card of 128
    multiprocessors, for kernels that call what nobody knows beforehand. There are none here: what a kernel has on its
    stack is known when it is loaded, and the driver raises the limit to that by itself. (On an H200 to 64 bytes, by the
    kernels of windows.) It holds for the process's context on this device. Whoever runs other kernels in the same
    process, which do call such things, asks for stacks as large as they need, before or behind this: a limit that is
    not the usual one is left alone.

    Returns:
        Whether it does so; not where the driver has no such call, nor where somebody has asked for another size.
    """
    if device.type != "cuda":
        return False
    try:
        driver = loaded(_CALLS, "limits")
    except TierError:
        return False
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # there is a context
        now = c_size_t()
        if driver.cuCtxGetLimit(byref(now), STACK_SIZE) or now.value != USUAL:
            return False
        return int(driver.cuCtxSetLimit(STACK_SIZE, 0)) == 0
