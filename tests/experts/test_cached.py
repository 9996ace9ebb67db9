"""Compiled code on disk: used again by the next process, and not needed where nothing can be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import caching

from strata.experts.kernels.cached import compiled
from strata.experts.kernels.fingerprint import fingerprint

TWICE = """
from strata.experts.kernels import kernel
from strata.formats import by_name
print(kernel(by_name("Q8_0"), "plain").code.cache_hits)
"""


def increment(x):
    return x + 1


def test_without_a_place_to_write(monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert compiled(increment, "intp(intp)")(1) == 2


def test_with_a_full_disk(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    assert compiled(increment, "intp(intp)")(1) == 2


def test_other_types_are_not_compiled_by_surprise():
    with pytest.raises(TypeError):
        compiled(increment, "intp(intp)")("one")


def test_a_second_process_finds_the_kernel(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", TWICE]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=False) for _ in range(2)
    )
    assert (first.stdout, second.stdout) == ("0\n", "1\n"), first.stderr + second.stderr


def test_the_fingerprint_covers_the_tables(monkeypatch):
    """A changed byte in a grid changes the name under which kernels are kept."""
    before = fingerprint.__wrapped__()
    assert before == fingerprint()
    original = Path.read_bytes

    def changed(path):
        content = original(path)
        return content + b"\0" if path.name == "grids.bin" else content

    monkeypatch.setattr(Path, "read_bytes", changed)
    assert fingerprint.__wrapped__() != before
