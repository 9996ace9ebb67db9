"""Kernels noted instead of launched, compiled by other processes, and then found on disk by the launch itself."""

import itertools
import subprocess
import sys
from functools import partial

import pytest

pytest.importorskip("triton")

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from strata.errors import StrataError
from strata.gguf import open_model
from strata.loading import gpu, storage
from strata.model import Network, load_config, load_weights
from strata.ops.choice import gpu as choice
from strata.ops.experts import triton as experts
from strata.ops.experts.slots import SlotLayout, Slots
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.kernels import ahead
from strata.ops.kernels.ahead import compile_all
from strata.ops.kernels.launches import Launch, Target, compiled, missing, noted
from strata.ops.matvec.triton import PlaneMatrix, product, quantise
from strata.ops.planes import layout as planes
from strata.ops.tiers.bring import sources
from support.stored import write_stored

TARGET = Target(90)
CARD = gpu.Card(0, "Abacus 9", TARGET.arch, 24 * 10**9, 25 * 10**9)


class NoCard:
    """A driver that says what card there is; there is none. Each is another device, for which nothing is compiled."""

    numbers = itertools.count()

    def __init__(self):
        self.number = next(self.numbers)

    def get_current_target(self):
        return GPUTarget("cuda", TARGET.arch, TARGET.lanes)

    def get_current_device(self):
        return self.number

    def get_current_stream(self, device=None):  # noqa: ARG002
        return 0


@pytest.fixture(autouse=True)
def card(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "_active", NoCard())


def launch():
    floats, ints = torch.full((64,), 7.0), torch.full((64,), 7, dtype=torch.int32)
    for top in (1, 3, 1):
        choice.best_parts[(1, 1)](
            floats, ints.to(torch.int8), floats, ints, floats, ints, 64, 1,
            BLOCK=64, TOP=top, PDL=True, launch_pdl=True, num_warps=4,
        )  # fmt: skip
    choice.accept[(1,)](*[ints] * 7, ROWS=8, STOPS=16, PDL=False, num_warps=1)
    return floats, ints


def test_what_is_noted_is_compiled_elsewhere_and_found_by_its_launch(monkeypatch):
    kept = []
    wanted = noted(lambda: kept.extend(launch()))
    assert [(one.module, one.name) for one in wanted] == [
        (choice.__name__, "best_parts"), (choice.__name__, "best_parts"), (choice.__name__, "accept")
    ]  # fmt: skip
    assert all((x == 7).all() for x in kept)
    assert missing(wanted, TARGET) == wanted
    heard = []
    compile_all(wanted, TARGET, 2, lambda: heard.append(1))
    assert heard == [1, 1, 1]
    assert missing(wanted, TARGET) == []
    assert missing(wanted, Target(80)) == wanted
    hits = []
    monkeypatch.setattr(triton.knobs.compilation, "listener", lambda *, cache_hit, **_: hits.append(cache_hit))
    run = JITFunction.run
    monkeypatch.setattr(JITFunction, "run", lambda *given, **more: run(*given, **(more | {"warmup": True})))
    launch()
    assert hits == [True] * 3


def test_a_process_that_met_others_before_compiles_for_this_one():
    """Triton's key of a kernel hangs on which ones a process has met, for what they call in common."""

    def both():
        x = quantise(torch.zeros((1, 64)))
        layout = SlotLayout("IQ3_XXS", "IQ3_XXS", "IQ4_NL", 256, 256)
        wide, slots = quantise(torch.zeros((1, 256))), torch.zeros((2, layout.nbytes), dtype=torch.uint8)
        product(PlaneMatrix("Q8_0", 32, 64, torch.zeros(planes("Q8_0").nbytes(32, 64), dtype=torch.uint8)), x)
        one = Slots(layout, slots, torch.zeros(2, dtype=torch.int32), -1, None)
        experts.gate_up(one, wide, experts.plan(torch.zeros((1, 2), dtype=torch.int32), one))

    wanted = noted(both)
    assert missing(wanted, TARGET) == wanted
    last = wanted[-1]
    assert last.name == "gate_up_kernel"
    compile_all([last], TARGET, 1)  # which meets it first
    assert missing([last], TARGET) == []


ORDER = """
import sys
from strata.ops.experts import kernels as experts
from strata.ops.kernels.launches import meet
from strata.ops.matvec import kernel as matvec
meet()
both = [matvec.product_kernel, experts.gate_up_kernel]
print(*sorted(kernel.cache_key for kernel in (both if "there" in sys.argv else both[::-1])))
"""


def test_keys_are_those_of_every_start():
    def keys(*words: str) -> str:
        return subprocess.run([sys.executable, "-c", ORDER, *words], capture_output=True, text=True, check=True).stdout

    assert keys("there") == keys("back")


def test_what_is_compiled_already_does_not_run_on_what_was_not_computed(monkeypatch):
    run = JITFunction.run
    with monkeypatch.context() as only_compiled:
        only_compiled.setattr(JITFunction, "run", lambda *given, **more: run(*given, **(more | {"warmup": True})))
        launch()
    kept, made = [], []
    assert noted(lambda: (kept.extend(launch()), made.append(torch.empty(64, dtype=torch.int32)))) == []
    assert all((x == 7).all() for x in kept)
    assert not made[0].any()
    assert JITFunction.run is run


def test_after_a_note_kernels_are_compiled_as_before():
    with pytest.raises(ZeroDivisionError):
        noted(lambda: 1 // 0)
    assert triton.knobs.runtime.jit_cache_hook is None


def test_one_that_does_not_compile_is_left_to_its_launch(caplog):
    caplog.set_level("INFO", "strata.ops")
    good = noted(launch)[2]
    bad = Launch(good.module, "no_such_kernel", good.form, good.key)
    compile_all([bad, good, bad], TARGET, 2)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "no_such_kernel is compiled where it is launched: AttributeError" in said[0]
    assert missing([good], TARGET) == []
    with pytest.raises(AttributeError, match="no_such_kernel"):
        compiled(bad, TARGET)


def test_a_process_that_ends_is_an_error(monkeypatch):
    monkeypatch.setattr(ahead.sys, "executable", "/bin/true")
    with pytest.raises(StrataError, match="cannot be compiled ahead"):
        compile_all(noted(launch), TARGET, 2)


def test_constants_that_are_tuples_come_back_as_such():
    kind, base = SlotLayout("Q8_0", "Q8_0", "Q8_0", 64, 32), torch.zeros(64, dtype=torch.uint8)
    (source,) = sources([kind], np.full((1, 2, 3), base.data_ptr(), np.int64), base, torch.device("cpu"))
    slots, stage = (torch.zeros((2, size), dtype=torch.uint8) for size in (kind.nbytes, source.nbytes))
    numbers = torch.zeros(16, dtype=torch.int32)
    found = noted(lambda: source.launch(slots, stage.view(-1), numbers, numbers, numbers, 2))
    assert len(missing(found, TARGET)) == len(found) == 1
    compiled(found[0], TARGET)
    assert missing(found, TARGET) == []


def test_a_table_beside_the_card_leaves_nothing_to_be_compiled_later(tmp_path, monkeypatch):
    """The released one never fits: its rows are looked up by the host, meanwhile by numbers that are zeros."""
    directory = open_model(write_stored(tmp_path / "m.gguf"))
    config = load_config(directory.metadata)
    weights, cpu = load_weights(directory, config), torch.device("cpu")
    hosted, beside = storage.hosted(weights, directory, "direct", cpu)
    wanted: dict[str, list[Launch]] = {}
    heard: list[int] = []

    def asked(where, launches, target, processes, on_each):
        assert (target, processes > 0) == (TARGET, True)
        wanted[where] = launches
        on_each()

    for where, those in (("there", weights), ("beside", hosted)):
        monkeypatch.setattr(driver, "_active", NoCard())
        monkeypatch.setattr(ahead, "compile_all", partial(asked, where))
        moved = Upload(cpu).all(those)
        ops = GpuOps(config, Pool(config, cpu, slots=2, cells=4096, kv=torch.bfloat16), cpu, graphs=False)
        ops.lacks(None)
        with torch.inference_mode():
            said = gpu.compile_ahead(Network(config, moved, ops), CARD, lambda: heard.append(1))
        assert said == f"{len(wanted[where])} kernels were compiled in 0 s, once for Abacus 9 and this version"
    assert set(wanted["beside"]) == set(wanted["there"])
    assert len(wanted["there"]) > 100
    assert heard == [1, 1]
    assert beside.rows.waits.asked > 10
    beside.close()
