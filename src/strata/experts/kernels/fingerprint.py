"""A mark that changes whenever a kernel's text could: what makes compiled kernels safe to keep on disk.

Numba keeps compiled code under the time stamp of the one file that holds the function. Ours are generated from many
files, and wheels carry fixed time stamps, so an upgrade could meet the old version's code.
"""

import hashlib
from functools import cache
from pathlib import Path

from strata.formats import codebooks, families

_FOLDERS = (
    Path(__file__).parents[1],
    *(Path(folder) for package in (codebooks, families) for folder in package.__path__),
)


@cache
def fingerprint() -> str:
    """Hash of every file that kernels are made from."""
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in {".py", ".bin"}):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
