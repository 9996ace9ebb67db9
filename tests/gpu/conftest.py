"""Tests that need a CUDA device; without one, or under the interpreter, nothing here is collected."""

import os

import torch

if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
    collect_ignore_glob = ["test_*.py"]
