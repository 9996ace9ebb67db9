"""zstd, which the standard library has from Python 3.14 on; a package of the same interface has it before."""

import sys
from typing import Any

zstd: Any
"""The module; None where there is none, as on a machine with torch, NumPy and Numba alone."""

try:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
except ImportError:
    zstd = None
