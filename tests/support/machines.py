"""Machines, models and wishes for the plan of memory, large and odd."""

from hypothesis import strategies as st

from strata.memory.budget import Cells, ExpertLayer, Machine, Reads, Sizes, Wishes, Work
from strata.memory.budget.least import least_ram, least_vram, settle

GB = 10**9


def released(experts: float = 43.0, dense: float = 4.0) -> Sizes:
    """The released model's sizes, about, in gigabytes of experts and of everything else."""
    stored = int(experts * GB / 24576)
    state = 36 * 48 * 128 * 128 * 4
    cells = Cells(
        {"bf16": 64 * 12 * 2680, "q8": 64 * 12 * 1700}, each=state + 4_700_000, spares=8, spare=state, listed=4
    )
    return Sizes(
        name="Released",
        context=262144,
        dense=int(dense * GB),
        draft=820_000_000,
        layers=(ExpertLayer(512, stored * 103 // 100, stored, stored + 3 * 4096),) * 48,
        transit=178_000_000 * stored // 2_176_000,
        ring=425_000_000 * stored // 2_176_000,
        table=28_800_138_240,
        row=1440,
        cells=cells,
        draft_cells=Cells({"bf16": 64 * 2680}, listed=4),
        work=Work(
            512 << 20, least=255_669_043, least_rows=512, most=1_366_602_547, most_rows=8192, usual=477_855_744,
            short=329_731_277,
        ),
        stored=int((experts + dense + 0.8) * GB),
        draft_stored=800_000_000,
        slack=819_200,
        host_cells=Cells({"f32": 64 * 12 * 4700, "q8": 64 * 12 * 1700}, each=state),
        reads=Reads(int((dense - 0.4) * GB), 2 * state, 1536, 50_000_000, 10, 320_000_000, 12.1e9),
    )  # fmt: skip


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    """Any model: layers of several sizes, with or without table, draft head and choice of pass length."""
    size = st.integers(1, 1000)
    kinds = draw(st.lists(st.tuples(size, size), min_size=1, max_size=3))
    padded = draw(st.sampled_from([0, 1, 200]))
    layers = draw(st.lists(st.tuples(st.integers(1, 40), st.sampled_from(kinds)), max_size=6))
    pages = {"bf16": draw(st.integers(1, 500))} | ({"q8": draw(st.integers(1, 500))} if draw(st.booleans()) else {})
    cells = Cells(
        pages,
        draw(st.sampled_from([1, 4, 64])),
        *(draw(st.integers(0, 300)) for _ in range(2)),
        draw(st.integers(0, 8)),
        *(draw(st.integers(0, 300)) for _ in range(2)),
    )
    head = Cells({"bf16": draw(st.integers(1, 50))}, cells.page, spares=cells.spares) if draw(st.booleans()) else None
    least = draw(st.integers(0, 500))
    extra = draw(st.integers(0, 400)) if head else 0
    rows = draw(st.integers(1, 64))
    return Sizes(
        name="Any",
        context=draw(st.integers(64, 200_000)),
        dense=draw(st.integers(0, 5000)),
        cells=cells,
        draft=draw(st.integers(1, 900)) if head else 0,
        layers=tuple(ExpertLayer(count, *kind, kind[1] + padded if padded else 0) for count, kind in layers),
        transit=draw(st.integers(0, 4000)),
        ring=draw(st.sampled_from([0, 300])),
        table=draw(st.sampled_from([0, 700, 20_000])),
        row=draw(st.integers(1, 3)),
        draft_cells=head,
        work=Work(
            draw(st.integers(0, 400)), draw(st.integers(0, 3)), draw(st.integers(1, 64)),
            least, rows, least + draw(st.integers(0, 900)), rows + draw(st.integers(0, 900)),
            draw(st.sampled_from([0, least, least + 100])), draw(st.sampled_from([0, least, least + 50])),
        ),
        stored=draw(st.integers(0, 9000)) + extra + sum(count * kind[1] for count, kind in layers),
        draft_stored=extra,
        slack=draw(st.sampled_from([0, 300])),
        files=draw(st.sampled_from([0, 5000])),
        reads=draw(st.sampled_from([None, Reads(500, 30, 1, 20, 3, 40, 1e6)])),
    )  # fmt: skip


@st.composite
def cases(draw: st.DrawFn, *, least: int = -3000, most: int = 60_000) -> tuple[Machine, Sizes, Wishes]:
    """A model, wishes, and a machine that has so much more than the least, of one kind of memory or both."""
    found = draw(sizes())
    wanted = draw(wishes(found))
    gpu = draw(st.booleans())
    chosen = settle(Machine(int(gpu)), found, wanted)
    more = st.integers(least, most)
    vram = sum(part.nbytes for part in least_vram(Machine(1), found, wanted, chosen)) + draw(more) if gpu else 0
    ram = sum(part.nbytes for part in least_ram(Machine(1, 1), found, wanted, chosen)) + draw(more)
    disk = draw(st.sampled_from([None, 5000, 5000 + min(least, 0)]))
    lends = draw(st.sampled_from([None, True, False]))
    return Machine(max(int(gpu), vram), max(0, ram), disk=disk, lends=lends), found, wanted


def wishes(found: Sizes) -> st.SearchStrategy[Wishes]:
    """What may be wished of a model."""
    return st.builds(
        Wishes,
        context=st.one_of(st.none(), st.integers(1, found.context)),
        conversations=st.integers(1, 9),
        kv=st.sampled_from([None, *found.cells.pages]),
        drafts=st.booleans(),
        headroom=st.one_of(st.just(0), st.integers(0, 2000)),
        ram_headroom=st.integers(0, 2000),
        parked=st.integers(0, 5000),
        experts=st.one_of(st.none(), st.integers(0, 30_000)),
        table=st.sampled_from([None, "ram", "ssd"]),
    )
