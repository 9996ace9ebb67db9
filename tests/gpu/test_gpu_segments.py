"""What torch takes in segments that grow: graphs replay, and what is free goes back."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

SCRIPT = """
import warnings
import torch
from strata.ops.gpu.segments import growing
from strata.ops.tiers.cuda import CudaChunks

device = torch.device("cuda", 0)
weights = torch.ones(30 << 20, dtype=torch.uint8, device=device)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert growing(device)
x, graphs = torch.zeros(1 << 20, device=device), []
for count in (1, 3):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = sum((x.repeat(count).view(count, -1) * 2)[i] for i in range(count))
    graphs.append((graph, out, count))
before = torch.cuda.memory_reserved()
for size in (70, 90, 110, 130):  # in pieces each would have its own
    torch.full((size << 20,), 7, dtype=torch.uint8, device=device)
assert torch.cuda.memory_reserved() - before <= 150 << 20, torch.cuda.memory_reserved() - before
assert any(one["is_expandable"] for one in torch.cuda.memory_snapshot())
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == before
for step in range(3):
    x.fill_(step)
    for graph, out, count in graphs:
        graph.replay()
        assert torch.equal(out, torch.full_like(out, 2.0 * step * count))
    torch.cuda.empty_cache()
chunks = CudaChunks(device)
address = chunks.reserve(2 * chunks.size)
held = [chunks.take(), chunks.take()]
for number, chunk in enumerate(held):
    chunks.put(address + number * chunks.size, chunk)
view = chunks.tensor(address, 2 * chunks.size, None)
view.fill_(5)
torch.cuda.empty_cache()
assert int(view.max()) == int(view.min()) == 5 and int(weights.min()) == 1
del view
chunks.end(address, 2 * chunks.size, held)
print("well")
"""


def test_graphs_slots_and_what_goes_back():
    """In a process of its own: it holds for the whole process."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("well\n"), done.stderr
