"""Where a model runs: what is taken, what is refused with which numbers, and what is said about it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import strata
from strata import pebble
from strata.cli.main import main
from strata.config import resolve
from strata.errors import ConfigError, RequestError
from strata.gguf import open_model
from strata.lab.synthetic.shapes import Synthetic, metadata, tensors
from strata.loading import gpu
from strata.loading import network as loading
from strata.loading.device import Placement, check_device
from strata.loading.gpu import TENSOR_CORES, Card, check_card
from strata.loading.sizes import shapes_of, sizes_of
from strata.memory import budget
from strata.model import ModelConfig, load_config, load_weights
from strata.model.config import Mixer
from strata.ops.gpu.size import USUAL
from support.hollow import hollow
from support.network import network
from support.stored import write_stored

CARD = Card(0, "Abacus 9", 90, 24 * 10**9, 25 * 10**9)


def plan(card: Card, weights: int, c: ModelConfig, conversations: int, *, drafts: bool) -> Placement:
    """A model of which only the bytes of its weights and its dimensions are known, whole on a card of its own."""
    shapes = shapes_of(replace(c, mtp=drafts), tensor_cores=card.capability >= TENSOR_CORES, short=USUAL)
    sizes = budget.Sizes(
        c.name, c.context, weights, shapes.cells, draft=int(drafts), draft_cells=shapes.draft_cells, work=shapes.work
    )
    kv = c.qsa.kv if c.qsa.kv in shapes.cells.pages else None
    made = budget.plan(
        budget.Machine(card.free), sizes, budget.Wishes(conversations=conversations, headroom=0, kv=kv, drafts=drafts)
    )
    return Placement.on_gpu(made, card.index, card.name)


@pytest.fixture
def tiny():
    return "pebble"


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_names_of_devices(name) -> None:
    check_device(name)
    assert resolve({"device": name}, environment={}).settings.device == name


@pytest.mark.parametrize("able", [True, False])
def test_a_card_is_asked_whether_slots_can_be_taken_away(monkeypatch, able) -> None:
    said = {
        "is_available": lambda: True, "device_count": lambda: 2, "mem_get_info": lambda _: (5, 9),
        "get_device_capability": lambda _: (8, 6), "get_device_name": lambda _: "Abacus 8",
    }  # fmt: skip
    for name, body in said.items():
        monkeypatch.setattr(torch.cuda, name, body)
    asked = []
    monkeypatch.setattr("strata.ops.tiers.room.lends", lambda device: asked.append(str(device)) or able)
    card = gpu.find("cuda:1")
    assert card == Card(1, "Abacus 8", 86, 5, 9, able)
    assert asked == ["cuda:1"]


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:1x", "CPU", "", 3])
def test_what_is_no_device(name) -> None:
    with pytest.raises(RequestError, match="the device must be auto, cpu, cuda, or cuda:N"):
        strata.load(device=name)
    with pytest.raises(ConfigError, match="--device must be auto, cpu, cuda, or cuda:N"):
        resolve({"device": name}, environment={})


def test_without_a_gpu_the_cpu_is_taken_and_nothing_is_said(tiny, monkeypatch, capsys) -> None:
    monkeypatch.setattr(gpu, "find", lambda _: None)
    with strata.load(tiny) as model:
        assert (model.ready.device, model.ready.why) == ("cpu", "")
        assert model.ready.placed.startswith("cpu: ")
    with pytest.raises(RequestError, match="torch finds no GPU it can use here"):
        strata.load(tiny, device="cuda")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("card", "more", "why"),
    [
        (replace(CARD, capability=61), {}, "Abacus 9 has compute capability 6.1; the kernels need 7.5 or newer"),
        (replace(CARD, capability=70), {}, "compute capability 7.0"),
        (CARD, {"kv": "q4"}, "keys and values are kept as bf16 or q8 on a GPU, not as q4"),
        (replace(CARD, free=10**6), {}, "Pebble does not fit: .* of VRAM are needed, 1.00 MB are there: .* for dense"),
    ],
    ids=["6.1", "7.0", "kv", "memory"],
)
def test_where_it_cannot_run_auto_says_why_and_cuda_is_refused(tiny, monkeypatch, card, more, why) -> None:
    monkeypatch.setattr(gpu, "find", lambda _: card)
    with strata.load(tiny, **more) as model:
        assert model.ready.device == "cpu"
        assert model.complete("ab", max_tokens=2).usage.completion_tokens == 2
        with pytest.raises(RequestError, match=why):
            raise RequestError(model.ready.why)
    with pytest.raises(RequestError, match=why):
        strata.load(tiny, device="cuda:0", **more)


def test_types_without_kernels_are_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(gpu, "find", lambda _: CARD)
    directory = open_model(write_stored(tmp_path / "m.gguf", narrow="Q4_0", name="base"))
    file = SimpleNamespace(directory=directory, metadata=directory.metadata, tokenizer=SimpleNamespace(size=90))
    with pytest.raises(RequestError, match="no kernels for matrices of type Q4_0"):
        loading.load_network(file, device="cuda")


def test_dimensions_without_kernels_are_named() -> None:
    gpu.check_shapes(network("base").config)
    c = network("base").config
    odd = replace(c, H=250, qsa=replace(c.qsa, budget=24))
    with pytest.raises(
        RequestError, match="chosen blocks is 6, not a power of two; the hidden width is 250, not a mul"
    ):
        gpu.check_shapes(odd)


def test_bf16_is_no_type_of_the_cpu(tiny) -> None:
    with pytest.raises(RequestError, match="kept as bf16 on a GPU only"):
        strata.load(tiny, device="cpu", kv="bf16")


def test_memory_is_divided() -> None:
    c = replace(network("base").config, context=4096)
    placed = plan(CARD, 10**9, c, 4, drafts=False)
    assert placed.cells == 4 * 4096, "enough for all"
    tight = replace(CARD, free=10**9 + placed.work + placed.cache - 5 * 10**6)
    fewer = plan(tight, 10**9, c, 4, drafts=False)
    assert 4096 <= fewer.cells < 4 * 4096
    assert fewer.cells % 64 == 0
    assert 10**9 + fewer.work + fewer.cache <= tight.free
    with pytest.raises(RequestError, match=r"1.00 GB for dense weights.*--context \d+K, .*or a smaller file"):
        plan(replace(CARD, free=10**9 + placed.work + 10**8), 10**9, replace(c, context=1 << 17), 4, drafts=False)


@pytest.mark.parametrize(
    ("free", "capability", "drafts"), [(149.5e9, 90, False), (149.5e9, 75, True), (80e9, 80, True), (68e9, 90, False)]
)
def test_what_is_divided_is_counted_by_what_takes_it(free, capability, drafts) -> None:
    """The released shapes: conversations by their pools, work by the passes; half of the rest is for more."""
    from strata.ops.gpu.size import cache_bytes, work_bytes

    c = replace(load_config(metadata(Synthetic())), context=131072, mtp=drafts)
    weights, card = 59 * 10**9, Card(0, "Abacus 9", capability, int(free), int(free))
    placed = plan(card, weights, c, 8, drafts=drafts)

    def cache(cells: int) -> int:
        return cache_bytes(c, slots=8, cells=cells, drafts=drafts)

    work = (512 << 20) + work_bytes(c, tensor_cores=capability >= 80)
    left = card.free - weights - work - cache(c.context)
    cells = c.context + min(7 * c.context, left // 2 // (cache(64) - cache(0)) * 64)
    assert (placed.cells, placed.cache, placed.work) == (cells, cache(cells), work)


@pytest.mark.parametrize("free", [110e9, 120e9, 140e9])
def test_a_file_is_planned_as_it_is_loaded(tmp_path, free) -> None:
    """The released shapes, all on one card. With hardly any room a plan has shorter passes; a load has not."""
    shapes = Synthetic(ngram_rows=20_000_000)
    infos = [(one.name, one.shape, one.type) for one in tensors(shapes)]
    directory = open_model(hollow(tmp_path / "flash.gguf", metadata(shapes), [infos[:600], infos[600:]]))
    c = replace(load_config(directory.metadata), context=131072)
    sizes = sizes_of(directory, c)
    kept = sizes.dense + sizes.table + sum(layer.count * layer.slot for layer in sizes.layers)
    card = replace(CARD, free=int(free), total=int(free))
    placed = plan(card, kept, c, 8, drafts=False)
    made = budget.plan(budget.Machine(card.free), sizes, budget.Wishes(conversations=8, headroom=0))
    assert made.vram is not None
    assert (made.resident, made.table, made.cells) == (True, "vram", placed.cells)
    assert made.vram.bytes_of("conversations") == placed.cache
    assert c.context < made.cells < 8 * c.context


def test_the_context_that_is_advised_fits() -> None:
    c = replace(network("base").config, context=1 << 20)
    card = replace(CARD, free=2_300_000_000)
    with pytest.raises(RequestError) as caught:
        plan(card, 10**9, c, 1, drafts=False)
    fewer = 1024 * int(str(caught.value).split("--context ")[1].split("K")[0])
    assert plan(card, 10**9, replace(c, context=fewer), 1, drafts=False).cells >= fewer


@pytest.fixture
def pretended(monkeypatch):
    """A card whose memory and arithmetic are the CPU's: kernels in the interpreter."""
    pytest.importorskip("triton")
    monkeypatch.setattr(gpu, "find", lambda _: CARD)
    monkeypatch.setattr(gpu, "_use", lambda _: torch.device("cpu"))


@pytest.mark.parametrize("drafts", [False, True])
def test_eight_bits_take_as_much_less_as_they_are_smaller(drafts) -> None:
    c = replace(network("base").config, context=4096, mtp=True)
    q, layers = c.qsa, c.mixers.count(Mixer.QSA)
    sizes = {
        kv: plan(CARD, 10**9, replace(c, qsa=replace(q, kv=kv)), 4, drafts=drafts).cache for kv in ("f32", "bf16", "q8")
    }
    assert sizes["f32"] == sizes["bf16"], "what a GPU has unless it is asked for another"
    a_head = 2 * q.hd - 36 * q.hd // 32
    assert sizes["bf16"] - sizes["q8"] == 4 * 4096 * layers * 2 * q.nkv * a_head, "the draft head's stay as they are"


@pytest.mark.parametrize("kv", ["bf16", "q8"])
@pytest.mark.usefixtures("pretended")
def test_on_a_gpu_it_says_so(tiny, kv) -> None:
    steps = []
    asked = {} if kv == "bf16" else {"kv": kv}
    with strata.load(tiny, on_load=lambda done, total: steps.append((done, total)), context=64, **asked) as model:
        assert (model.ready.device, model.ready.kv, model.ready.why) == ("cuda:0", kv, "")
        assert model.network.ops.drafts is None or model.network.ops.drafts.pool.keys[0].dtype == torch.bfloat16
        assert model.ready.placed.startswith("cuda:0 (Abacus 9): ")
        assert model.network.ops.form.startswith("gpu")
    assert steps[-1][0] == steps[-1][1]
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_what_goes_to_the_device_is_what_was_counted() -> None:
    pytest.importorskip("triton")
    from strata.ops.gpu.size import weight_bytes
    from strata.ops.gpu.upload import Upload

    directory = open_model(pebble.path("iq3"))
    weights = replace(load_weights(directory, load_config(directory.metadata)), mtp=None)
    sent = []
    moved = Upload(torch.device("cpu"), sent.append).all(weights)
    total, kept = weight_bytes(weights)
    assert sum(sent) <= total <= 1.1 * sum(sent), "small matrices go as numbers"
    held = {}

    def look(value) -> None:
        if isinstance(value, torch.Tensor):
            held[value.data_ptr()] = value.nbytes
        elif hasattr(value, "__dataclass_fields__"):
            for name in value.__dataclass_fields__:
                look(getattr(value, name))
        elif isinstance(value, tuple):
            for one in value:
                look(one)

    look(moved)
    assert abs(sum(held.values()) - kept) < 0.03 * kept


def test_the_command_line_says_why_not(tiny, capsys) -> None:
    assert main(["run", "--model", str(tiny), "--device", "cuda", "--max-tokens", "1", "ab"]) == 1
    assert "torch finds no GPU" in capsys.readouterr().err
    assert main(["run", "--model", str(tiny), "--device", "cpu", "--max-tokens", "1", "ab"]) == 0
    assert "strata: on cpu: " in capsys.readouterr().err


def test_a_placement_in_words() -> None:
    placed = Placement("cuda:1", "Abacus 9", 5 * 10**10, 262144, 8 * 10**9, 10**9)
    assert str(placed) == (
        "cuda:1 (Abacus 9): 50.0 GB of weights, 8.00 GB for conversations of together 262,144 tokens, "
        "1.00 GB of work space"
    )
    assert loading.CONVERSATIONS == 8


def test_a_card_that_is_new_enough() -> None:
    pytest.importorskip("triton")
    check_card(replace(CARD, capability=75))
    with pytest.raises(RequestError):
        check_card(replace(CARD, capability=72))
