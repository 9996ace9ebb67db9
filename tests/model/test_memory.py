"""Memory for what is kept: large pieces of it are of huge pages, where the system has them."""

import mmap
import sys
from pathlib import Path

import pytest
import torch

from strata.memory.arena import Region
from strata.model.memory import LARGE, PLAIN, populate

MAPS = Path("/proc/self/smaps")


def flags(address: int) -> list[str]:
    """What the system says of the mapping that has an address."""
    inside = False
    for line in MAPS.read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            first, end = (int(part, 16) for part in words[0].split("-"))
            inside = first <= address < end
        elif inside and words[0] == "VmFlags:":
            return words[1:]
    raise AssertionError(hex(address))


@pytest.mark.skipif(
    not (MAPS.exists() and hasattr(mmap, "MADV_HUGEPAGE") and Path("/sys/kernel/mm/transparent_hugepage").exists()),
    reason="the system has no huge pages, or does not say where",
)
def test_large_memory_asks_for_huge_pages() -> None:
    found = PLAIN.empty(4 * LARGE)
    found.fill_(7)
    assert "hg" in flags(found.data_ptr() + found.nbytes // 2)
    assert len(found) == 4 * LARGE


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
@pytest.mark.parametrize(("first", "end"), [(0, 8 << 20), (5, (8 << 20) - 7), (4095, 4097), (3, 3)])
def test_pages_are_given_before_they_are_written_to(first, end) -> None:
    region = Region(8 << 20)
    region.array[3 << 20] = 7
    before = region.resident()
    populate(torch.from_numpy(region.array)[first:end])
    whole = max(0, end // mmap.PAGESIZE - -(-first // mmap.PAGESIZE)) * mmap.PAGESIZE
    assert region.resident() >= max(before, whole), "Linux has it from 5.14 on"
    assert whole or region.resident() == before
    assert region.array[3 << 20] == 7
    assert not region.array[:1000].any()
