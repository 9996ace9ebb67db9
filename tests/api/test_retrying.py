"""Memory that was planned and cannot be had (case N01), and memory that turned out to take more or less."""

import logging
import mmap
import re
from bisect import bisect_left
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from strata import pebble
from strata.errors import RequestError
from strata.gguf import open_model
from strata.loading import gpu, network, ram, tiers
from strata.loading.bundled import find
from strata.loading.files import ModelFile
from strata.loading.gpu import Card
from strata.loading.network import load_network
from strata.loading.sizes import sizes_of
from strata.memory.arena import region
from strata.memory.budget import DoesNotFitError, Machine, Wishes, compared, least, plan
from strata.model import load_config
from strata.ops.tiers.tier import Tier
from support.machines import GB, released

CARD = Card(0, "Abacus 9", 90, 24 * GB, 25 * GB)
THERE = ram.Ram(64 * GB, 40 * GB, None)


@pytest.fixture(autouse=True)
def machine(monkeypatch) -> None:
    monkeypatch.setattr(gpu, "find", lambda _: CARD)
    monkeypatch.setattr(gpu, "_use", lambda _: torch.device("cpu"))
    monkeypatch.setattr(network, "measure", lambda: THERE)
    monkeypatch.setattr(Tier, "fill", lambda *_: None)  # copies in the interpreter take seconds, and are others' matter


def load(**flags: Any) -> network.Loaded:
    return load_network(ModelFile.open(find("pebble")), threads=1, conversations=1, **flags)


def refusing(monkeypatch, most: int) -> list[int]:
    """A card that has no room for more than so many slots."""
    asked = []
    real = tiers.build

    def build(weights, config, made, *rest):
        asked.append(made.slots)
        if made.slots > most:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {made.expert_vram} bytes.\nand more")
        return real(weights, config, made, *rest)

    monkeypatch.setattr(tiers, "build", build)
    return asked


def test_n01_a_card_that_gives_less_than_it_said_gets_fewer_experts(monkeypatch, caplog) -> None:
    directory = open_model(pebble.path("q8_0"))
    config = load_config(directory.metadata)
    sizes = sizes_of(directory, config)
    whole = bisect_left(range(1_200_000_000), 128, key=lambda nbytes: plan_slots(nbytes, sizes))
    vram = whole - 1
    asked = refusing(monkeypatch, 20)
    with caplog.at_level(logging.WARNING, "strata.loading"):
        found = load(vram=vram, ngram="direct")
    try:
        assert asked[0] == plan_slots(vram, sizes) >= 40
        assert asked == sorted(asked, reverse=True)
        assert found.network.ops.tier.room.slots == (asked[-1],)
        assert asked[-1] <= 20 < asked[-2]
        assert found.placement.share == pytest.approx(asked[-1] / 128)
        texts = [record.getMessage() for record in caplog.records]
        assert len(texts) == len(asked) - 1
        assert texts[-1] == (
            f"memory that was planned could not be had (CUDA out of memory. Tried to allocate "
            f"{asked[-2] * sizes.layers[0].slot} bytes.); trying again with {asked[-1]} of 128 experts in VRAM"
        )
    finally:
        found.network.ops.tier.close()
        found.storage.close()


def plan_slots(vram: int, sizes) -> int:
    try:
        return plan(Machine(vram), sizes, Wishes(context=sizes.context, conversations=1, table="ssd")).slots
    except DoesNotFitError:
        return -1


def test_n01_a_whole_model_that_does_not_fit_after_all_goes_into_tiers(monkeypatch, caplog) -> None:
    from strata.ops.gpu.upload import Upload

    real, tried = Upload.all, []

    def all_(self, weights):
        tried.append(self)
        if len(tried) == 1:
            raise RuntimeError("CUDA error: out of memory")
        return real(self, weights)

    monkeypatch.setattr(Upload, "all", all_)
    with caplog.at_level(logging.WARNING, "strata.loading"):
        found = load(ngram="direct")
    assert found.network.ops.tier.room.slots == (96,)
    assert "trying again with 96 of 128 experts in VRAM" in caplog.text
    found.network.ops.tier.close()
    found.storage.close()


def test_n01_where_nothing_helps_need_and_flags_are_said(monkeypatch) -> None:
    asked = refusing(monkeypatch, -1)
    monkeypatch.setattr("strata.ops.gpu.upload.Upload.all", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    with pytest.raises(
        DoesNotFitError, match=r"Pebble does not fit after all: .* but not even .*; what would help: a sh"
    ):
        load(device="cuda", ngram="direct")
    assert asked[-1] == 0
    assert len(asked) < 16


def test_another_error_is_nobodys_want_of_memory(monkeypatch) -> None:
    monkeypatch.setattr("strata.ops.gpu.upload.Upload.all", lambda *_: (_ for _ in ()).throw(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        load()


def test_n01_without_a_gpu_experts_that_find_no_memory_are_read_from_the_file(monkeypatch, caplog) -> None:
    """As under `ulimit -v`: a piece of memory that is too large is refused, a smaller one is not."""
    sizes = sizes_of(open_model(pebble.path("q8_0")), load_config(open_model(pebble.path("q8_0")).metadata))
    most, asked = 3_500_000, []

    def map_(descriptor, length, **more):
        if descriptor == -1 and length > 1_000_000 + region.HUGE:
            asked.append(length)
            if length > most + region.HUGE:
                raise OSError(12, "Cannot allocate memory")
        return mmap.mmap(descriptor, length, **more)

    fake = SimpleNamespace(**{name: getattr(mmap, name) for name in dir(mmap) if name.isupper()}, mmap=map_)
    monkeypatch.setattr(region, "mmap", fake)

    def experts(nbytes: int) -> int:
        """Bytes of main memory that a plan gives them."""
        try:
            made = plan(Machine(0, nbytes), sizes, Wishes(context=sizes.context, conversations=1, table="ssd"))
        except DoesNotFitError:
            return 0
        return made.ram.bytes_of(least.EXPERTS)

    limit = bisect_left(range(1_000_000_000), 5_000_000, key=experts)
    with caplog.at_level(logging.WARNING, "strata.loading"):
        found = load(device="cpu", ram=limit, ngram="mmap")
    assert len(asked) >= 2
    assert asked == sorted(asked, reverse=True)
    assert found.storage.tier.nbytes <= most
    assert "memory that was planned could not be had (" in caplog.text
    assert "trying again with 2." in caplog.text or "trying again with 3." in caplog.text
    assert found.storage.tier.slots < 128
    found.storage.close()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (0, "of VRAM are left, as planned."),
        (300_000_000, "300 MB of VRAM more were taken than planned; "),
        (-200_000_000, "200 MB of VRAM less were taken than planned; they stay free"),
    ],
)
def test_what_was_taken_is_said_beside_what_was_planned(more, words) -> None:
    made = plan(Machine(24 * GB, 64 * GB), released(), Wishes(context=32768))
    assert made.vram is not None
    kept = made.vram.bytes_of(least.KEPT)
    taken = compared(made, made.vram.free + kept - more)
    assert words in str(taken)
    assert taken.more == more
    assert (taken.fewer > 0) == (more > 0)
    if more > 0:
        headroom = int(str(taken).split("--headroom ")[1].split("MB")[0]) * 10**6
        again = plan(Machine(24 * GB, 64 * GB), released(), Wishes(context=32768, headroom=headroom))
        assert again.vram is not None
        after = compared(again, again.vram.free + headroom - more)  # the same surprise as before
        assert after.free >= kept - 10**6, "as much is left as was meant"
        assert made.slots - again.slots >= taken.fewer * 0.9


def test_less_than_the_headroom_is_said_with_numbers_and_a_card_is_measured(monkeypatch) -> None:
    for vram in (None, 2_400_000_000):
        free = iter([24 * GB, 24 * GB - 2 * GB])
        monkeypatch.setattr(gpu, "_free", lambda _, free=free: next(free))
        found = load(ngram="direct", vram=vram)
        told = found.placement.plan[-1]
        assert re.match(r"Measured after loading: 1\.\d\d GB of VRAM more were taken than planned; ", told)
        assert ("--headroom " in told) == (vram is not None), "of 24 GB there is enough left"
        found.storage.close()


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_none_of_a_card_is_the_cpu_or_an_error(device) -> None:
    if device == "auto":
        assert load(vram=0).placement.device == "cpu"
        return
    with pytest.raises(RequestError, match="none of the memory of Abacus 9 may be taken"):
        load(vram=0, device="cuda")


def test_a_process_that_takes_much_more_than_its_part_says_so(monkeypatch) -> None:
    sizes = iter([100_000_000, 2 * GB])
    monkeypatch.setattr(network, "private", lambda: next(sizes))
    found = load(device="cpu")
    assert any("GB of RAM more were taken than planned" in text for text in found.placement.plan)
    found.storage.close()
    assert replace(found.placement, plan=()).plan == ()
