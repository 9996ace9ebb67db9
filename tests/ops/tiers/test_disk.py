"""Layers whose experts lie on the device, in RAM and on a disk: the judge's rows whoever lies where."""

import errno
import threading
import time

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.errors import FormatError, TierError
from strata.experts.misses import Costs
from strata.memory.arena import Stack
from strata.memory.reads import Readers
from strata.memory.tier import Stock
from strata.ops.planes import pack
from strata.ops.tiers import measure
from strata.ops.tiers import ram as rams
from strata.ops.tiers.here import here
from strata.ops.tiers.landing import Landing
from strata.ops.tiers.prompts import Shelf
from support.launch import NATIVE
from support.stocked import disk
from support.tiered import tiered
from support.tiers import Told

# What nobody computed is quantised with the rest and never read; the interpreter's NumPy says so.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

HOST, LINK, BOTH = Costs(1.0, 1e6), Costs(1e6, 1.0), Costs(1.0, 1.0)
EXPERTS = 6
DEVICE = torch.device("cuda" if NATIVE else "cpu")


def _holds(found):
    for got, expected, _ in found:
        assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("residents", "share", "costs"),
    [*((n, share, BOTH) for n in (0, 2) for share in (0.0, 0.4, 1.0)), (EXPERTS, 0.4, BOTH), (0, 0.4, LINK)],
)
def test_rows_are_the_judges_wherever_experts_lie(tmp_path, residents, share, costs):
    with disk(tmp_path / "experts.bin", share) as ram:
        made = tiered([(i, e) for i in range(2) for e in range(residents)], costs=costs, ram=ram)
        try:
            everybody = ram.stock.shown | (made.cache.slot_of >= 0)
            _holds(made.window(2))
            made.tier.settled()
            last = made.tier.last
            assert last.experts == last.resident + last.link + last.host > 0
            assert last.ssd <= last.host
            if residents == EXPERTS:
                assert last.host == last.link == last.ssd == 0
            elif share == 1.0:
                assert last.ssd == 0
                assert everybody.all()
                assert last.link > 0
            elif not residents and not share:
                assert last.ssd > 0
                assert last.read_us > 0
        finally:
            made.close()


def test_who_lies_where_changes_between_windows_and_rows_do_not(tmp_path):
    """Moves evict on the card, reads evict in RAM, tables and shares change: always the judge's rows."""
    rng, met = np.random.default_rng(5), set()
    with disk(tmp_path / "experts.bin", 0.4, landing=2, half_life=2.0) as ram:
        made = tiered([(0, 0), (1, 1)], slots=3, ram=ram)
        try:
            for window in range(5):
                made.tier.share_out((HOST, LINK, BOTH)[window % 3])
                found = made.window(int(rng.integers(1, 3)))
                made.cache.next = [
                    Told(int(rng.integers(2)), e, slot)
                    for slot, e in enumerate(rng.permutation(EXPERTS)[: int(rng.integers(1, 4))])
                ]
                made.tier.settled()
                _holds(found)
                last = made.tier.last
                met |= {name for name in ("resident", "link", "ssd") if getattr(last, name)}
                assert last.ssd <= last.host
            assert met == {"resident", "link", "ssd"}
            made.tier.begin()
            assert ram.stock._room.held.pinned == len(ram.stock._coming)
            here = np.stack([ram.stock.here(i) for i in range(2)])
            assert (here & ~ram.stock.shown).any()  # some of RAM is kept for whoever comes
        finally:
            made.close()


def test_whoever_lies_on_the_card_gives_way_in_ram(tmp_path):
    with disk(tmp_path / "experts.bin", 0.5) as ram:
        made = tiered([(i, e) for i in range(2) for e in range(3)], ram=ram)
        try:
            here = np.stack([ram.stock.here(i) for i in range(2)])
            assert here.tolist() == (made.cache.slot_of < 0).tolist()  # the complement, exactly
            _holds(made.window(2))
            made.tier.settled()
            assert made.tier.last.ssd == 0
        finally:
            made.close()


@pytest.mark.skipif(NATIVE, reason="patience is counted in looks")
def test_a_disk_that_fails_or_hangs_fails_the_window_and_the_next_is_right(tmp_path):
    way, gate = ["fails"], threading.Event()

    def decide(_call, _file, n, _at):
        if way[0] == "hangs":
            gate.wait()
        return -errno.EIO if way[0] == "fails" else n

    with disk(tmp_path / "experts.bin", 0.0, lambda *a: decide(*a) if way[0] else a[2], patience=0.2) as ram:
        before, way[0] = way[0], ""
        made = tiered([], costs=HOST, ram=ram, looks=10_000_000)
        try:
            for kind, text in ((before, r"experts\.bin: reading at byte"), ("hangs", r"have not come from the disk")):
                way[0] = kind
                found = made.window(2)
                assert np.isnan(found[-1][0]).all()  # nothing that was not computed looks like a row
                with pytest.raises(TierError, match=rf"experts could not be read from the disk: layer \d.*{text}"):
                    made.tier.settled()
                way[0] = ""
                gate.set()
                ram.stock._coming.patience = 60.0
                _holds(made.window(2))
                made.tier.settled()
                ram.stock._coming.patience = 0.2
                gate.clear()
        finally:
            gate.set()
            made.close()


def _landing(tier, most):
    return Landing([one.source for one in tier.layers], most, DEVICE, tier.ram.cuts)


def test_what_prompts_bring_is_the_experts_planes(tmp_path):
    """Through fewer slots than a group has experts, beside experts that stay."""
    with disk(tmp_path / "experts.bin", 0.3) as ram:
        made = tiered([(0, 1), (1, 4)], ram=ram)
        try:
            shelf = Shelf(made.tier, _landing(made.tier, 4))
            shelf.begin()
            shown = ram.stock.shown.copy()
            for layer in (1, 0):
                kind, moe = shelf.layout(layer), made.moes[layer]
                memory = torch.full((6, kind.nbytes), 255, dtype=torch.uint8, device=DEVICE)
                assert shelf.borrow(4) is None
                missing = shelf.missing(layer).tolist()
                shelf.ask(layer, missing[:3])
                for some in (missing[:4], missing[4:]):
                    shelf.fetch(layer, some, 2)
                    to = torch.tensor([missing.index(e) for e in some], dtype=torch.int32, device=DEVICE)
                    shelf.bring(layer, memory, len(some), 2, to)
                for buffer, expert in enumerate(missing):
                    for part, matrix in zip(kind.parts, (moe.gate, moe.up, moe.down), strict=True):
                        raw = torch.from_numpy(matrix.raw[expert]).to(DEVICE)
                        planes = pack(matrix.type.name, raw, matrix.shape[-1])
                        assert torch.equal(memory[buffer, part][: len(planes)], planes)
            assert ram.stock.stats.misses > 0
            assert (ram.stock.shown == shown).all()
            _holds(made.window(2))
            made.tier.settled()
            assert made.tier.last.ssd <= made.tier.last.host
            assert ram.stock._room.held.pinned == len(ram.stock._coming)
        finally:
            made.close()


def test_a_prompt_whose_disk_fails_is_given_up_and_the_next_is_right(tmp_path):
    broken = [False]
    decide = lambda _call, _file, n, _at: -errno.EIO if broken[0] else n  # noqa: E731
    with disk(tmp_path / "experts.bin", 0.0, decide) as ram:
        made = tiered([], ram=ram)
        try:
            shelf = Shelf(made.tier, _landing(made.tier, 6))
            shelf.begin()
            broken[0] = True
            with pytest.raises(TierError, match=r"a prompt's pass was given up, .*experts\.bin: reading at byte"):
                shelf.fetch(0, range(6), 0)
            broken[0] = False
            shelf.begin()
            shelf.fetch(0, range(6), 0)
            _holds(made.window(1))
            made.tier.settled()
        finally:
            made.close()


def test_costs_are_measured_with_whoever_is_in_ram(tmp_path):
    with disk(tmp_path / "experts.bin", 0.4) as ram:
        made = tiered([], ram=ram)
        try:
            before = ram.stock.missed
            assert measure.calibrate(made.tier).host > 0
            assert ram.stock.missed == before
            for shown in (False, True):
                layer, some = here(made.tier, 0, 9, shown=shown)
                assert len(some) >= 9
                assert (ram.stock.shown if shown else np.stack([ram.stock.here(i) for i in range(2)]))[
                    layer, some
                ].all()
        finally:
            made.close()


def test_experts_at_odd_places_are_refused(tmp_path):
    path = tmp_path / "odd.bin"
    path.write_bytes(bytes(9000))
    from strata.memory.reads import ReadFile

    source, pool = ReadFile(path), Readers(1)
    stock = Stock([(Stack(source, 8, 32, 32, 2),) * 3], pool, 1 << 20)
    with pytest.raises(FormatError, match="begin at byte 8, but a GPU reads them at multiples of 16"):
        rams.stocked(stock, on_gpu=NATIVE)
    stock.close()
    pool.close()


def test_a_window_does_not_wait_for_what_it_does_not_want(tmp_path):
    """Hits and experts in RAM go on beside a disk that hangs with a read ahead."""
    gate = threading.Event()
    gate.set()
    with disk(tmp_path / "experts.bin", 1.0, lambda _call, _file, n, _at: gate.wait() and n) as ram:
        made = tiered([(0, 0), (1, 1)], ram=ram)
        try:
            gate.clear()
            began = time.monotonic()
            _holds(made.window(2))
            made.tier.settled()
            assert made.tier.last.ssd == 0
            assert time.monotonic() - began < 60
        finally:
            gate.set()
            made.close()
