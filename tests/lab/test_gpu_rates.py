"""Measurements of a GPU, in Triton's interpreter: that they compute what they say; speed is another matter."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.errors import StrataError
from strata.lab.codegen.kernels import all_kernels
from strata.lab.rates import gpu
from strata.lab.rates.cpu import Mix
from strata.lab.rates.gpu import Gpu
from strata.lab.rates.rounds import Pace
from strata.lab.rates.stream import BLOCK

MIX = Mix("Q8_0", "Q8_0", "Q8_0", 64, 32, 2)
BYTES = 4 * BLOCK + 400


@pytest.fixture
def card() -> Gpu:
    return Gpu(torch.device("cpu"), Pace(rounds=1, seconds=0.01), BYTES, BYTES)


def test_every_measurement_runs_and_its_copies_are_copies(card):
    for found in (card.read(), card.copy(), card.link_copy("ram"), card.link_kernel("ram"), card.start()):
        assert found.least > 0
        assert found.rounds == 1


def test_words_are_copied_or_added_up_to_the_last():
    words = torch.from_numpy(np.random.default_rng(0).integers(-9999, 9999, BLOCK + 77).astype(np.int32))
    copied = torch.full((len(words) + 1,), 5, dtype=torch.int32)
    gpu._stream(words, copied, write=True)
    assert torch.equal(copied[:-1], words)
    assert copied[-1] == 5
    sums = torch.zeros(2, dtype=torch.int32)
    gpu._stream(words, sums, write=False)
    expected = [int(part.to(torch.int64).sum()) for part in words.split(BLOCK)]
    assert sums.tolist() == expected


def test_a_kernel_that_copies_wrongly_is_noticed(card, monkeypatch):
    monkeypatch.setattr(gpu, "_stream", lambda *_, **__: None)
    with pytest.raises(StrataError, match="not what was there"):
        card.link_kernel("gpu")
    with pytest.raises(StrataError, match="another sum"):
        card.read()


def test_the_way_to_the_first_kernel_is_no_speed_of_the_card(monkeypatch):
    """A card on which a kernel takes 100 us, and its first launch in a row is on its way for 30."""
    clock, idle = 0.0, True

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            self.at = 0.0

        def record(self) -> None:
            nonlocal idle
            self.at, idle = clock, True

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, ended: "Event") -> float:
            return (ended.at - self.at) * 1e3

    def work(*_: object, **__: object) -> None:
        nonlocal clock, idle
        clock += 130e-6 if idle else 100e-6
        idle = False

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(gpu, "_stream", work)
    made = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *size, **more: made(*size, **more | {"device": "cpu"}))
    monkeypatch.setattr(torch, "empty_like", lambda like: like)
    card = Gpu(torch.device("cuda"), Pace(rounds=3), 1 << 20, BYTES)
    assert card.copy().median == pytest.approx(2 * (1 << 20) / 1e9 / 100e-6, rel=0.05)


def test_experts_are_brought(card, monkeypatch):
    brought = []
    real = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *a, **k: brought.append(real(*a, **k)) or brought[-1])
    assert card.bring(MIX).least > 0
    slots = next(one for one in brought if one.ndim == 2)
    assert slots.shape[0] == gpu.TOGETHER
    assert bool((slots != 0).any(dim=1).all()), "every one of them came"


def test_its_kernel_is_compiled_for_every_architecture():
    names = [kernel.name for kernel in all_kernels()]
    for name in ("rates.read", "rates.copy"):
        assert names.count(name) == 6


def test_the_parts_of_a_card_and_its_link_are_measured(tmp_path):
    from dataclasses import replace

    from strata.lab.calibrate import QUICK, Subject, parts, run
    from strata.loading.calibration import Machine, Record
    from strata.version import __version__

    effort = replace(QUICK, rows=(2,), vram=BYTES, pinned=BYTES, square=8)
    subject, device = Subject(("Q8_0",), (MIX,), tmp_path), torch.device("cpu")
    works = [part(device, "Abacus", subject, effort, Pace(rounds=1)) for part in (parts.gpu, parts.link)]
    empty = Record(Machine("Abacus 9", 2, 2, 1 << 34), __version__)
    record, whole, found = run(works, empty, quick=True, keep=lambda _: None)
    assert whole
    assert [part.problem for part in found] == ["", ""]
    assert {part.about for part in found} == {"Abacus"}
    assert [len(part.values) for part in found] == [work.count for work in works]
    assert [v["rows"] for v in record.find("gpu.expert", types=MIX.types, hidden=64, inner=32)] == [2]
    assert record.find("link.expert", types=MIX.types, hidden=64, inner=32)
    assert {v["to"] for v in record.find("link.kernel")} == {"gpu", "ram"}
