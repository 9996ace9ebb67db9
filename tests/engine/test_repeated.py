"""The same request gives the same answer in another process whose memory is filled with rubbish (case P05)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import hashlib, sys, torch
from strata.engine import Drafting, Generation, Request, step
import strata
net = strata.load("pebble").network
torch.set_num_threads(int(sys.argv[1]))
from dataclasses import replace
net = replace(net, drafts=True)
with torch.inference_mode():
    for _ in range(2):
        prompts = [tuple(range(5 + i, 90 + i)) for i in range(3)]
        many = [Generation(net, net.new_state(), Request("", ids, max_tokens=3)) for ids in prompts]
        one = Request("", tuple(range(20, 60)), max_tokens=6, drafting=Drafting(4, head=True, floor=0.0))
        one = Generation(net, net.new_state(), one)
        for g in (*many, one):
            g.read(64), g.read(64)
        while not all(g.finished for g in many):
            step(net, many)
        while not one.finished:
            step(net, [one])
        digest = hashlib.sha256()
        for g in (*many, one):
            net.settle(g.state)
            digest.update(repr((g.finished, g.newest)).encode())
            for name, tensor in g.state.tensors():
                digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
        print(digest.hexdigest())
"""


@pytest.mark.slow
def test_threads_and_what_memory_holds_change_nothing():
    answers = []
    for threads, fill in (("2", "165"), ("1", "85")):
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "MALLOC_PERTURB_": fill}
        command = [sys.executable, "-c", SCRIPT, threads]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        answers += done.stdout.split()
    assert len(answers) == 4
    assert len(set(answers)) == 1
