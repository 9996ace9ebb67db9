"""Segments that torch takes a GPU's memory in."""

import os
import platform

import torch

from strata.errors import TierError
from strata.ops.tiers.cuda import CudaChunks

SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Where a user says how torch takes memory; torch reads them by itself."""


def growing(device: torch.device) -> bool:
    """From now on torch takes memory in segments that grow, and gives back what it keeps for later.

    As a rule it takes a piece for what fits into none that it has. A prompt pass of another length asks for other
    sizes, which are cut from the pieces of those before as well as they fit: on an H200 with everything in VRAM torch
    kept 0.72 GB for later, of which a pass uses 0.25. A segment grows to the most that was in use at a time: 0.28 GB.
    Beside weights and cells that made 1.74 GB of 2.19, at the same speed (334.9 tokens/s). Called when the weights are
    there, which stay in pieces: they never go, and this was measured so. It holds for the whole process from then on.

    What else takes memory goes on as before. Captured graphs have pools of their own, of pieces or segments, as torch
    has it (2.1 and later allow both). Slots of experts are taken from the driver (`strata.ops.tiers.cuda`). And
    `torch.cuda.empty_cache` gives back what is free of a segment in pages of 20 MiB, 2 for small tensors.

    Nothing is changed where a user has said how torch takes memory (`SETTINGS`), where the driver has no virtual
    memory, and under WSL, where torch's calls for it fail (pytorch issue 192330).

    Returns:
        Whether it does so.
    """
    if device.type != "cuda" or any(os.environ.get(name) for name in SETTINGS):
        return False
    if "microsoft" in platform.release().lower():
        return False
    try:
        CudaChunks(device)
    except TierError:
        return False
    torch.cuda.empty_cache()
    # Nothing public does this: torch.cuda.memory._set_allocator_settings warns, and calls the same (2.11, 2.13).
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")  # noqa: SLF001
    return True
