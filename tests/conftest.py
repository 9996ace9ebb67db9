"""Settings shared by all tests."""

import importlib.util
import os
import signal
import tempfile
from collections.abc import Iterator

import pytest

# Two test processes on two cores: one thread each, and the same sums whatever the machine's core count.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Kernels run in Triton's interpreter unless told otherwise (tools/gpu_tests.py does). Triton reads this when it is
# imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

# What whoever runs the tests has measured of this machine is none of their business.
os.environ["XDG_CACHE_HOME"] = f"{tempfile.gettempdir()}/strata-tests-cache"

# A run started in the background inherits an ignored SIGINT, and so would the commands whose Ctrl-C is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("triton") is not None and os.environ["TRITON_INTERPRET"] == "1":
    from support import interpreter

    interpreter.settle()


@pytest.fixture(scope="module")
def unchecked() -> Iterator[None]:
    """For modules whose tests launch the kernels of whole networks, often."""
    if os.environ["TRITON_INTERPRET"] != "1":
        yield
        return
    from support import interpreter

    with interpreter.unchecked():
        yield
