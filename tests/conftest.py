"""Settings shared by all tests."""

import os

# Two test processes on two cores: one thread each, and the same sums whatever the machine's core count.
os.environ.setdefault("OMP_NUM_THREADS", "1")
