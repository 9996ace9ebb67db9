"""A GPU's streams, and the memory that CUDA keeps: in a process of its own, for both hold for all of it."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

SCRIPT = """
import torch
from strata.ops.gpu.stacks import small_stacks
from strata.ops.streams import recorded, stream

device = torch.device("cuda", 0)
x = torch.zeros(1 << 20, device=device)
torch.cuda.synchronize()
before = torch.cuda.mem_get_info()[0]
assert small_stacks(device)
assert torch.cuda.mem_get_info()[0] - before > 50_000_000
before = torch.cuda.mem_get_info()[0]
some = [stream("a"), stream("b", device), stream("a", urgent=True)]
assert stream("b").cuda_stream == some[1].cuda_stream
assert len({s.cuda_stream for s in some}) == 3
assert [s.priority for s in some] == [0, 0, -1]
for s in some:  # side by side, and what follows waits
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        x.add_(1)
    torch.cuda.current_stream().wait_stream(s)
assert bool((x == 3).all())
graphs = []
for count in (1, 2):
    graph = torch.cuda.CUDAGraph()
    with recorded(graph, graphs[0].pool() if graphs else None):
        some[0].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(some[0]):
            x.add_(count)
        torch.cuda.current_stream().wait_stream(some[0])
    graphs.append(graph)
for graph in graphs:
    graph.replay()
assert bool((x == 6).all())
if torch.cuda.get_device_properties(0).total_memory > 40e9:
    assert before - torch.cuda.mem_get_info()[0] < 60_000_000, before - torch.cuda.mem_get_info()[0]
deep = torch.sort(torch.rand(1 << 20, device=device)).values  # kernels that have something on their stacks
assert bool((deep[1:] >= deep[:-1]).all())
print("well")
"""


def test_streams_and_stacks():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("well\n"), done.stderr
