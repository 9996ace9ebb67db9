"""Choosing kernels by what the processor has, and refusing threads that lose subnormal numbers."""

import threading

import pytest
import torch

from strata.experts import cpu
from strata.experts.errors import KernelError


@pytest.mark.parametrize(
    ("features", "best"),
    [
        ({"avx2", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512vbmi"}, "avx512vbmi"),
        ({"avx2", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"}, "avx512"),
        ({"avx2", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"}, "avx2"),
        ({"avx2", "f16c", "avxvnni"}, "avxvnni"),
        ({"avx2", "avx"}, "plain"),
        ({"neon", "dotprod"}, "plain"),
    ],
    ids=["Zen 4", "Cascade Lake", "Skylake-X", "Alder Lake", "no F16C", "ARM"],
)
def test_best_path(features, best, monkeypatch):
    monkeypatch.setattr(cpu, "features", lambda: frozenset(features))
    assert cpu.choose() == best
    assert cpu.paths()[-1] == "plain"


def test_a_path_this_processor_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(cpu, "features", lambda: frozenset({"avx2", "f16c"}))
    assert cpu.choose("avx2") == "avx2"
    with pytest.raises(KernelError, match=r"avx512vnni.*runs avx2, plain"):
        cpu.choose("avx512")


def test_an_unknown_path_is_refused():
    with pytest.raises(KernelError, match=r"'sse'.*avx2, plain"):
        cpu.choose("sse")


def test_a_thread_that_flushes_subnormals_is_refused():
    """torch sets the mode for the thread that asks for it; other threads are not concerned."""
    caught = []

    def flushing():
        if not torch.set_flush_denormal(True):
            caught.append("unsupported")
            return
        try:
            cpu.check_subnormals()
        except KernelError as error:
            caught.append(str(error))
        finally:
            torch.set_flush_denormal(False)

    thread = threading.Thread(target=flushing)
    thread.start()
    thread.join()
    if caught == ["unsupported"]:
        pytest.skip("this processor has no such mode")
    assert "subnormal" in caught[0]
    cpu.check_subnormals()
