"""One plan of memory: what `strata plan` prints for this machine is what is loaded there, to the byte.

A card is pretended: its memory is the CPU's, and kernels run in the interpreter. Every byte is counted where it was
taken, not where it was planned.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from strata.api import load
from strata.cli.main import main
from strata.errors import RequestError
from strata.loading import gpu, network, ram
from strata.loading.bundled import find
from strata.loading.files import ModelFile
from strata.loading.gpu import Card
from strata.loading.network import Loaded, load_network
from strata.loading.sizes import sizes_of
from strata.loading.tiers import buffers
from strata.memory.budget import DoesNotFitError, Machine, Sizes, least, plan
from strata.memory.budget.machine import Rates
from strata.memory.budget.wishes import Wishes
from strata.model import load_config
from strata.ops.gpu import segments
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.ngram.host import HostTable
from strata.ops.ngram.table import NgramTable
from strata.ops.tiers.prompts import LINK
from strata.ops.tiers.room import FixedRoom

CARD = Card(0, "Abacus 9", 90, 24 * 10**9, 25 * 10**9)
THERE = ram.Ram(64 * 10**9, 40 * 10**9, None)


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path) -> None:
    """24 GB of VRAM and 40 GB of RAM."""
    monkeypatch.setattr(gpu, "find", lambda _: CARD)
    monkeypatch.setattr(gpu, "_use", lambda _: torch.device("cpu"))
    monkeypatch.setattr(ram, "measure", lambda: THERE)
    monkeypatch.setattr(network, "measure", lambda: THERE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def sizes(name: str) -> Sizes:
    file = ModelFile.open(find(name))
    return sizes_of(file.directory, load_config(file.metadata))


def said(capsys, name: str, **flags: Any) -> dict[str, Any]:
    """What the command says."""
    tokens = [part for key, value in flags.items() if value is not None for part in (f"--{key}", str(value))]
    assert main(["plan", name, "--json", *tokens]) == 0
    return json.loads(capsys.readouterr().out)


def loaded(name: str, *, drafts: int = 7, **flags: Any) -> Loaded:
    """What the engine of `strata serve` loads with the same flags."""
    flags = {key.replace("-", "_"): value for key, value in flags.items()}
    return load_network(
        ModelFile.open(find(name)), threads=1, drafts=drafts > 0, parked=1 << 30,
        **{"conversations": 8} | flags,
    )  # fmt: skip


def tensors(value: Any, seen: set[int], deep: int = 6) -> Iterator[torch.Tensor]:
    """All tensors within, each once."""
    if isinstance(value, torch.Tensor):
        if value.untyped_storage().data_ptr() not in seen:
            seen.add(value.untyped_storage().data_ptr())
            yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors(one, seen, deep)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one, seen, deep)
    elif hasattr(value, "__dataclass_fields__") and deep:
        for field in value.__dataclass_fields__:
            yield from tensors(getattr(value, field), seen, deep - 1)


def bytes_of(value: Any, seen: set[int] | None = None) -> int:
    """Of all tensors within."""
    return sum(t.untyped_storage().nbytes() for t in tensors(value, set() if seen is None else seen))


def parts(plan: dict[str, Any], where: str) -> dict[str, int]:
    return {part["name"]: part["nbytes"] for part in plan[where]["parts"]}


WHOLE, SMALL = 1_200_000_000, 586_000_000
"""Bytes of VRAM that hold all of Pebble, and that hold nothing beside the work space."""


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("pebble", {}),
        ("pebble", {"vram": WHOLE}),
        ("pebble", {"drafts": 0}),
        ("pebble", {"drafts": 0, "conversations": 1}),
        ("pebble", {"kv": "q8", "conversations": 3, "context": 512}),
        ("pebble", {"ngram": "ram"}),
        ("pebble-iq3", {"ngram": "direct", "vram": WHOLE, "headroom": 10**8}),
        ("pebble-iq3", {"ngram": "mmap", "drafts": 0}),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(f"{k}={v}" for k, v in value.items()) or "free",
)
def test_on_a_gpu_with_all_experts_there(capsys, name, flags) -> None:
    told = said(capsys, name, **flags)
    found = loaded(name, **flags)
    check_gpu(told, found)
    assert told["experts"]["in_vram"] == told["experts"]["total"]
    assert found.network.ops.tier is None
    if found.storage is not None:
        found.storage.close()


def test_torch_takes_in_segments_all_that_is_loaded(monkeypatch) -> None:
    steps: list[str] = []
    upload, pool = Upload.all, Pool.__init__

    def moved(self: Upload, weights: Any) -> Any:
        found = upload(self, weights)
        steps.append("weights")
        return found

    def made(self: Pool, *args: Any, **more: Any) -> None:
        steps.append("pool")
        pool(self, *args, **more)

    monkeypatch.setattr(Upload, "all", moved)
    monkeypatch.setattr(Pool, "__init__", made)
    monkeypatch.setattr(segments, "growing", lambda device: steps.append(f"segments on {device}"))
    loaded("pebble", drafts=0, vram=WHOLE)
    assert steps == ["segments on cpu", "weights", "pool"]


@pytest.mark.parametrize(
    ("experts", "flags"),
    [
        (0, {}),
        (20, {"drafts": 0, "conversations": 1}),
        (11, {"ngram": "direct", "context": 256}),
        (7, {"ngram": "ram", "kv": "q8", "conversations": 2}),
    ],
    ids=["none", "no drafts", "rows read", "rows held, q8"],
)
def test_on_a_gpu_with_some_experts_there(capsys, experts, flags) -> None:
    vram = vram_for(sizes("pebble"), experts, flags)
    told = said(capsys, "pebble", vram=vram, **flags)
    assert told["experts"]["in_vram"] == experts
    found = loaded("pebble", vram=vram, **flags)
    check_gpu(told, found)
    tier = found.network.ops.tier
    try:
        assert list(tier.room.slots) == [one["in_vram"] for one in told["experts"]["classes"]]
        assert int((tier.cache.slot_of >= 0).sum()) == experts
        slots = sum(n * rows.shape[1] for n, rows in zip(tier.room.slots, tier.room.arrays, strict=True))
        assert slots == parts(told, "vram").get("experts", 0)
        assert slots <= tier.room.nbytes < slots + 2 * tier.room.waste
        ring = found.network.ops._prompt.streaming._ring
        landing = ring._layers._area._places
        taken = bytes_of([tier._scratch, tier._stage, tier._mover._stage, ring._memory, landing])
        assert taken == parts(told, "vram")["experts on their way"]
        assert ring.buffers == tier.options.room == 16
        check_loan(told, found, sizes("pebble"))
    finally:
        tier.close()
        if found.storage is not None:
            found.storage.close()


def check_loan(told: dict[str, Any], found: Loaded, planned: Sizes) -> None:
    """A long prompt finds the memory that is planned for it: passes, and a ring as wide as it takes."""
    ops = found.network.ops
    assert ops._loan._short == told["prompt_rows_without_borrowing"] <= told["prompt_rows"]
    assert told["borrowed"] <= parts(told, "vram").get("experts", 0) // 2
    ring = ops._prompt.streaming._wide._make()
    assert bytes_of([ring._memory, ring._layers._area._places]) == planned.ring == ops._loan._ring
    assert ring.buffers == buffers(16)


def test_on_a_gpu_whose_driver_cannot_take_slots_away(capsys, monkeypatch) -> None:
    """Passes are as long as the plan says without borrowing, for it has their memory there all the time."""
    card = replace(CARD, lends=False)
    longer = said(capsys, "pebble", vram=vram_for(sizes("pebble"), 60, {}))["prompt_rows"]
    monkeypatch.setattr(gpu, "find", lambda _: card)
    monkeypatch.setattr(
        "strata.ops.tiers.tier.room_for",
        lambda sizes, _, slots, device: FixedRoom(sizes, slots, device, "no such calls"),
    )
    vram = vram_for(sizes("pebble"), 60, {}, lends=False)
    told = said(capsys, "pebble", vram=vram)
    assert told["prompt_rows"] == told["prompt_rows_without_borrowing"]
    assert (told["borrowed"], told["experts"]["in_vram"], told["machine"]["lends"]) == (0, 60, False)
    assert any("passes of up to" in text and "all the time" in text for text in told["sentences"])
    found = loaded("pebble", vram=vram)
    check_gpu(told, found)
    tier = found.network.ops.tier
    try:
        assert tier.room.slots == (60,)
        ready = found.network.ops.ready
        assert ready(told["prompt_rows"]) == told["prompt_rows"] == found.network.ops.pass_rows
        assert ready(longer) < longer, "as slots would have lent for"
        assert tier.borrowing.nbytes == 0
    finally:
        tier.close()
        if found.storage is not None:
            found.storage.close()


@pytest.mark.parametrize("away", [80, 20])
def test_on_a_gpu_with_some_experts_on_the_disk(capsys, monkeypatch, away) -> None:
    monkeypatch.setattr("strata.loading.planning.rates_for", lambda *_: Rates(disk=1.5))
    found = sizes("pebble")
    flags: dict[str, Any] = {"ngram": "direct"}
    vram = vram_for(found, 30, flags)
    ram_ = ram_for_gpu(found, 128 - 30 - away)
    told = said(capsys, "pebble", vram=vram, ram=ram_, **flags)
    (kind,) = told["experts"]["classes"]
    assert (kind["in_vram"], kind["in_ram"], kind["on_ssd"]) == (30, 128 - 30 - away, away)
    loaded_ = loaded("pebble", vram=vram, ram=ram_, **flags)
    check_gpu(told, loaded_)
    tier = loaded_.network.ops.tier
    try:
        stock = tier.supply.stock
        assert stock.slots == 128 - 30 - away
        assert len(stock.region) == parts(told, "ram")["experts"]
        assert "of the experts; the others are in RAM and in the file" in str(loaded_.placement)
        largest = max(layer.source.nbytes for layer in tier.layers)
        costs = loaded_.network.ops._prompt.streaming._costs
        assert costs.link == pytest.approx(largest * (1 / LINK + tier.supply.absent / 1.5e3))
    finally:
        tier.close()
        stock.close()
        loaded_.storage.close()


def ram_for_gpu(found: Sizes, experts: int) -> int:
    """Main memory with which so many experts lie there beside a GPU."""
    (held,) = {layer.held for layer in found.layers}
    wishes = Wishes(context=found.context, conversations=8, table="ssd", parked=0)
    chosen = least.settle(Machine(1), found, wishes)
    parts = least.least_ram(Machine(1, 1 << 50), found, wishes, chosen)
    fixed = sum(part.nbytes for part in parts if part.name != least.SYSTEM)
    room = experts * held + found.slack
    return -(-(fixed + room * 4 // 3 + 64) * 16 // 15)  # a quarter is for kept conversations


def check_gpu(told: dict[str, Any], found: Loaded) -> None:
    """Everything that lies on the card has the bytes that were said."""
    net, vram = found.network, parts(told, "vram")
    ops, seen = net.ops, set[int]()
    assert (told["device"], net.config.context, net.config.qsa.kv) == ("gpu", told["context"], told["kv"])
    assert (net.weights.mtp is not None) == told["drafts"] == ("draft head" in vram)
    pools = [ops._pool, *([ops.drafts.pool] if ops.drafts else [])]
    kept = [getattr(pool, part) for pool in pools for part in
            ("states", "tails", "keys", "values", "raw", "blocks", "table", "ngram_tails", "history")]  # fmt: skip
    assert bytes_of(kept) == vram["conversations"]
    assert ops._pool.slots == told["conversations"]
    assert len(ops._pool.states) == 2 * ops._pool.slots + (ops._pool.slots == 1 and not told["drafts"] and not ops.tier)
    assert 0 <= ops._pool.cells - told["cells"] < 64
    assert ops.pass_rows == told["prompt_rows"]
    (table,) = [layer.ple.table for layer in net.weights.layers if layer.ple]
    assert isinstance(table, HostTable) == (told["table"] in {"ram", "ssd"})
    if told["table"] == "vram":
        assert bytes_of(table, seen) == vram["n-gram table"]
    head = bytes_of(net.weights.mtp, set())
    if ops.tier is None:
        everything = bytes_of(net.weights, seen) - vram.get("experts", 0)
    else:  # which has slots and room of its own, and what all layers' parts share
        tier = ops.tier
        assert bytes_of([tier.room.arrays, tier._scratch, tier.table, tier.layers[0].halves], seen)
        everything = bytes_of(net.weights, seen)
    # Small matrices go as numbers, and what head and trunk share is counted for the trunk.
    assert everything == pytest.approx(vram["dense weights"] + vram.get("draft head", 0), rel=0.03)
    assert head >= vram.get("draft head", 0) * 0.95
    assert found.placement.cells == told["cells"]
    assert found.placement.plan[: len(told["sentences"])] == tuple(told["sentences"])


def vram_for(found: Sizes, experts: int, flags: dict[str, Any], *, lends: bool = True) -> int:
    """The least VRAM with which so many experts have slots."""
    low, high = 1, WHOLE
    wanted = {key: value for key, value in flags.items() if key in {"context", "conversations", "kv"}}
    table = {"ram": "ram", "direct": "ssd"}.get(flags.get("ngram", ""))

    def slots(vram: int) -> int:
        wishes = Wishes(
            **{"conversations": 8, "context": found.context} | wanted, drafts=flags.get("drafts", 7) > 0, table=table
        )
        try:
            return plan(Machine(vram, 38 * 10**9, lends=lends), found, wishes).slots
        except Exception:  # noqa: BLE001
            return -1

    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if slots(middle) >= experts else (middle + 1, high)
    return low


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("pebble", {}),
        ("pebble", {"ram": 2_000_000_000}),
        ("pebble", {"kv": "q8", "conversations": 2, "drafts": 0}),
        ("pebble", {"ram": 576_000_000}),
        ("pebble", {"ram": 578_000_000, "drafts": 0, "ngram": "direct"}),
        ("pebble-iq3", {"ram": 576_000_000, "ngram": "ram", "conversations": 5}),
        ("pebble-iq3", {"ngram": "mmap"}),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(f"{k}={v}" for k, v in value.items()) or "free",
)
def test_on_the_cpu(capsys, name, flags) -> None:
    check_cpu(said(capsys, name, device="cpu", **flags), loaded(name, device="cpu", **flags), flags)


def check_cpu(told: dict[str, Any], found: Loaded, flags: dict[str, Any]) -> None:
    """Everything that lies in RAM has the bytes that were said."""
    net, memory = found.network, parts(told, "ram")
    assert (told["device"], net.config.context, net.config.qsa.kv) == ("cpu", told["context"], told["kv"])
    assert (net.weights.mtp is not None) == told["drafts"]
    tier = found.storage.tier
    classes = told["experts"]["classes"]
    if told["experts"]["in_ram"] == "all":
        assert tier is None
    else:
        assert tier.slots == sum(one["in_ram"] for one in classes)
        assert int((tier.held.slot_of >= 0).sum()) == tier.slots
        assert tier.nbytes == memory["experts"]
    assert found.placement.parked == memory.get("kept conversations", 0)
    (table,) = [layer.ple.table for layer in net.weights.layers if layer.ple]
    assert isinstance(table, NgramTable) == ("ngram" in flags)
    if flags.get("ngram") == "ram":
        assert len(found.storage.rows._region) == memory["n-gram table"]
    assert found.placement.plan[: len(told["sentences"])] == tuple(told["sentences"])
    found.storage.close()


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["pebble", "pebble-iq3"]),
    st.fixed_dictionaries(
        {"ram": st.integers(560_000_000, 600_000_000)},
        optional={
            "context": st.sampled_from([64, 700, 2048]), "kv": st.sampled_from(["f32", "f16", "q8", "q4"]),
            "drafts": st.sampled_from([0, 3]), "conversations": st.integers(1, 8),
            "ngram": st.sampled_from(["ram", "mmap", "direct"]),
        },
    ),
)  # fmt: skip
def test_on_the_cpu_whatever_is_wished(capsys, name, flags) -> None:
    """Fits or does not, whole or in part: the command and the loader say and do the same."""
    tokens = [part for key, value in flags.items() for part in (f"--{key}", str(value))]
    fits = main(["plan", name, "--device", "cpu", *tokens]) == 0
    error = capsys.readouterr().err
    if fits:
        check_cpu(said(capsys, name, device="cpu", **flags), loaded(name, device="cpu", **flags), flags)
        return
    with pytest.raises(DoesNotFitError) as caught:
        loaded(name, device="cpu", **flags)
    assert f"strata: error: {caught.value}" in error


@pytest.mark.parametrize("flags", [{"vram": SMALL // 2}, {"ram": 400_000_000}, {"vram": SMALL, "ram": 10**9}])
def test_a_refusal_is_the_same_sentence(capsys, flags) -> None:
    """With a card it is why the CPU was taken, or the error."""
    tokens = [part for key, value in flags.items() for part in (f"--{key}", str(value))]
    device = ["--device", "cpu"] if "vram" not in flags else []
    assert main(["plan", "pebble", *tokens, *device]) == 1
    error = capsys.readouterr().err
    with pytest.raises(DoesNotFitError, match="does not fit") as caught:
        loaded("pebble", device="cpu" if device else "cuda", **flags)
    assert f"strata: error: {caught.value}" in error


def test_a_model_begins_warm_the_second_time_and_takes_another_share_as_planned(tmp_path) -> None:
    """From `strata.load` to slots and back: what was hot lies there at the next start; sizes begin with the plan."""
    many = vram_for(sizes("pebble"), 20, {})

    def start() -> tuple[Any, Any]:
        model = load("pebble", threads=1, device="cuda", vram=many, profiles=tmp_path / "profiles")
        return model, model.network.ops.tier

    model, tier = start()
    with model:
        first = {tuple(pair) for pair in np.argwhere(tier.cache.slot_of >= 0).tolist()}
        layers, experts = tier.cache.slot_of.shape
        hot = np.array([(a, e) for a in range(layers) for e in range(experts) if (a, e) not in first][:20])
        for _ in range(3):
            tier.cache.seen(hot)
        tier._windows += 3
    model, tier = start()
    with model:
        there = np.argwhere(tier.cache.slot_of >= 0).tolist()
        assert len(there) == 20
        assert sorted(there) == sorted(hot.tolist())
        before, at = model.ready, model.source.engine._placement
        rest = at.weights - at.slots + at.cache + at.work + at.kept + tier.room.waste
        assert model.resize(rest + 8 * tier.room.arrays[0].shape[1]).slots == 8
        assert (tier.cache.slot_of >= 0).sum() == sum(tier.room.slots)
        assert model.ready.placed != before.placed
        assert "Since it was loaded the memory was shared out anew" in " ".join(model.ready.plan)
        # A page of each size is kept back; what a plan leaves because no page of cells fits in, may be a slot.
        assert model.resize(many).slots in {19, 20, 21}
        with pytest.raises(RequestError, match="are needed without a single routed expert"):
            model.resize(many // 2)
    assert [path.suffix for path in (tmp_path / "profiles").iterdir()] == [".profile"]


def test_what_a_person_should_hear_of_it_comes_with_the_engine(monkeypatch) -> None:
    built = gpu._built
    monkeypatch.setattr(gpu, "_built", lambda *given: replace(built(*given), notes=("9 kernels were compiled",)))
    with load("pebble") as model:
        assert model.ready.device == "cuda:0"
        assert model.ready.notes == ("9 kernels were compiled",)
