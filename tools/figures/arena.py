"""All experts in RAM where a GPU reaches them: in the file's own pages if that can be had at all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from figures.conditions import available
from strata.errors import TierError
from strata.experts.compute import Expert
from strata.gguf import TensorDirectory
from strata.model.weights import Moe
from strata.ops.gpu.size import check_experts
from strata.ops.tiers import ram as rams

SPARE = 8 << 30
"""Bytes that have to stay available beside a copy."""


def arena(
    directory: TensorDirectory, moes: Sequence[Moe], device: torch.device
) -> tuple[rams.Ram, str, list[Moe], list[Expert]]:
    """Where experts are, how, and the layers whose matrices lie there.

    Raises:
        TierError: the file's pages are refused, and there is no room for a copy beside it.
    """
    if device.type != "cuda":
        return rams.mapped(moes), "the file's pages", list(moes), rams.described(moes)
    found = rams.registered(moes)
    if found is not None:
        return found, "the file's pages, registered as read-only", list(moes), rams.described(moes)
    writable, kept = _writable(directory, moes)
    found = _registered(writable)
    if found is not None:
        held = rams.Ram(found.addresses, found.base, (found.kept, kept))
        return held, "the file's pages, mapped for writing and registered", writable, rams.described(writable)
    need = sum(sum(m.nbytes * m.experts for m in layer) for layer in rams.described(moes))
    if available() - need < SPARE:
        raise TierError(
            f"the file's pages could not be registered with the GPU, and a copy of {need / 1e9:.1f} GB does not fit: "
            f"{available() / 1e9:.1f} GB of RAM are available, {SPARE / 1e9:.1f} of which stay free"
        )
    return rams.pinned(moes), "copied to locked memory", list(moes), rams.described(moes)


def _writable(directory: TensorDirectory, moes: Sequence[Moe]) -> tuple[list[Moe], Any]:
    """The same layers in mappings that could be written to, which some drivers insist on. Nobody writes."""
    maps = [(file.buffer.ctypes.data, np.memmap(file.path, np.uint8, "r+")) for file in directory.data_files]

    def there(matrix: Any) -> Any:
        matrix = check_experts(matrix)
        at = matrix.raw.ctypes.data
        base, whole = next((base, whole) for base, whole in maps if base <= at < base + len(whole))
        return replace(matrix, raw=whole[at - base : at - base + matrix.raw.nbytes].reshape(matrix.raw.shape))

    return [replace(moe, gate=there(moe.gate), up=there(moe.up), down=there(moe.down)) for moe in moes], maps


def _registered(moes: Sequence[Moe]) -> rams.Ram | None:
    """As `rams.registered`, for pages that may be written."""
    before = rams._READ_ONLY  # noqa: SLF001
    rams._READ_ONLY = 0  # noqa: SLF001
    try:
        return rams.registered(moes)
    finally:
        rams._READ_ONLY = before  # noqa: SLF001
