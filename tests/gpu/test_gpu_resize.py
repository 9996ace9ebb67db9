"""A GPU's memory that goes and comes behind addresses that stay: really free meanwhile, and found by graphs."""

import pytest
import torch

pytest.importorskip("triton")

from strata.errors import RoomError
from strata.ops.tiers.cuda import CudaChunks
from strata.ops.tiers.room import SlotRoom

pytestmark = pytest.mark.gpu

SLOT = 1 << 20


def free() -> int:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def test_memory_goes_and_comes_and_graphs_find_it():
    device = torch.device("cuda")
    chunks = CudaChunks(device)
    room = SlotRoom(chunks, [SLOT, SLOT], [512, 512], [256, 64])
    slots, other = room.arrays
    slots[:256], other[:64] = 7, 9
    source = torch.full((SLOT,), 5, dtype=torch.uint8, device=device)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=stream):
        torch.add(source, 0, out=slots[0])  # kernels, as all that a window launches
        torch.add(source, 0, out=other[40])
    full = free()

    room.set([16, 64])
    assert free() - full >= 220 << 20
    assert bool((slots[:16] == 7).all())
    graph.replay()
    torch.cuda.synchronize()
    assert bool((slots[0] == 5).all())
    assert bool((other[40] == 5).all())

    room.set([512, 41])  # what one class gives the other may take
    slots[500:512] = 3
    graph.replay()
    torch.cuda.synchronize()
    assert bool((slots[500:512] == 3).all())
    assert bool((slots[1:16] == 7).all())
    assert bool((other[40] == 5).all())


def test_more_than_there_is_is_refused_and_nothing_changes():
    chunks = CudaChunks(torch.device("cuda"))
    most = free() // SLOT + 4096
    room = SlotRoom(chunks, [SLOT], [most], [8])
    room.arrays[0][:8] = 1
    before = free()
    with pytest.raises(RoomError, match="are free for slots"):
        room.set([most])
    with pytest.raises(RoomError):
        room.set([64], spare=chunks.free())
    assert (free(), room.slots) == (before, (8,))
    assert bool((room.arrays[0][:8] == 1).all())


def test_all_of_it_is_the_systems_in_the_end():
    chunks = CudaChunks(torch.device("cuda"))
    chunks.free()  # torch's own cache is empty
    before = free()
    room = SlotRoom(chunks, [SLOT], [512], [512])
    room.arrays[0][511] = 1
    assert before - free() >= 512 << 20
    del room
    assert before - free() < 16 << 20
