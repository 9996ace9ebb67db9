"""Compiled kernels need a process in which Triton does not interpret; `test_compiled.py` starts one."""

import os

collect_ignore = ["compiled"] if os.environ.get("TRITON_INTERPRET") == "1" else []
