"""What users of measurements begin with: rates of a plan, costs of the two sides of a miss, times of windows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strata.formats import by_name
from strata.loading.calibration.record import Record, Value
from strata.loading.calibration.store import warned

if TYPE_CHECKING:
    from strata.engine.drafting.timings import Start
    from strata.experts.misses import Costs
    from strata.loading.files import ModelFile
    from strata.loading.network import Loaded
    from strata.ops.experts.slots import SlotLayout

LONG = 500_000
"""Bytes of a random read from which it counts as an expert's."""


def rates(
    record: Record, *, types: Mapping[str, float] | None = None, disk: str | None = None, card: str | None = None
) -> dict[str, float]:
    """Measured rates by the names of `strata.memory.budget.Rates`; only those that were measured.

    Args:
        record: what was measured.
        types: bytes by block type of what the CPU computes; None for whatever was measured.
        disk: which; None for the one measured last.
        card: likewise; the empty name is no card.
    """
    found: dict[str, float] = {}
    if card != "":
        for name, kind, keys in (
            ("vram", "gpu.read", {}), ("tflops", "gpu.products", {}), ("link", "link.copy", {"to": "gpu"}),
        ):  # fmt: skip
            values = record.find(kind, card, **keys)
            if values:
                found[name] = values[0].median
        starts = record.find("gpu.start", card)
        if starts:
            found["start"] = starts[0].median
    cpu = cpu_rate(record, types)
    if cpu is not None:
        found["cpu"] = cpu
    reads = [value for value in record.find("disk.random", disk) if value["bytes"] >= LONG]
    reads = reads or record.find("disk.sequential", disk)
    if reads:
        found["disk"] = max(value.median for value in reads)
    return found


def cpu_rate(record: Record, types: Mapping[str, float] | None = None) -> float | None:
    """GB/s of weights that the CPU's kernels get through, one row at a time, on all threads of the pool.

    Args:
        record: what was measured.
        types: bytes by block type; one that was not measured is taken to be like the measured one of nearest size.
            None weighs all measured types alike.
    """
    by_type = {value["type"]: value for value in _widest(record.find("cpu.product", rows=1))}
    if not by_type:
        return None
    wanted = types or dict.fromkeys(by_type, 1.0)
    seconds = sum(share / by_type[_nearest(name, by_type)].median for name, share in wanted.items())
    return sum(wanted.values()) / seconds


def costs(record: Record, layouts: Sequence["SlotLayout"], threads: int, before: "Costs") -> "Costs | None":
    """Microseconds of an expert on either side, by the speed of kernels and link; None if neither is known.

    Args:
        record: what was measured.
        layouts: of every layer's experts.
        threads: of the host; a rate measured with others is taken to grow with them.
        before: what is taken of a side that is not known.
    """
    count = Counter(layouts)
    host = _mean([(_host(record, kind, threads), n) for kind, n in count.items()])
    link = _mean([(_link(record, kind), n) for kind, n in count.items()])
    if host is None and link is None:
        return None
    return replace(before, host=before.host if host is None else host, link=before.link if link is None else link)


def starting_costs(
    layouts: Sequence["SlotLayout"], threads: int, before: "Costs", record: Record | None = None
) -> "tuple[Costs | None, bool]":
    """Costs that tiers begin with, and whether they were measured in just such ones.

    Args:
        layouts: of every layer's experts.
        threads: of the host.
        before: what is taken of a side that is not known.
        record: what was measured; None for what is kept of this machine.
    """
    record = warned() if record is None else record
    if record is None:
        return None, False
    found = measured_costs(record, layouts, threads)
    return (found, True) if found is not None else (costs(record, layouts, threads, before), False)


def measured_costs(record: Record, layouts: Sequence["SlotLayout"], threads: int) -> "Costs | None":
    """Both sides as they were measured in tiers of just such experts and threads; None if they were not."""
    from strata.experts.misses import Costs
    from strata.ops.tiers.measure import COMPUTED_US, DOORBELL_US

    keys: dict[str, Any] = {"experts": described(layouts), "threads": threads}
    found = {name: record.find(f"tier.{name}", **keys) for name in ("host", "link", "host_first", "link_first")}
    if not all(found.values()):
        return None
    numbers = {name: values[0].median for name, values in found.items()}
    around = {"host_first": DOORBELL_US, "link_first": COMPUTED_US}  # which neither side's own time has
    return Costs(**{name: number + around.get(name, 0.0) for name, number in numbers.items()})


def described(layouts: Sequence["SlotLayout"]) -> str:
    """Layers' experts in words."""
    count = Counter((f"{kind.gate}/{kind.up}/{kind.down}", kind.hidden, kind.inner) for kind in layouts)
    return ", ".join(f"{n} x {types} {hidden}x{inner}" for (types, hidden, inner), n in sorted(count.items()))


def start(record: Record, about: str) -> "Start | None":
    """Times of windows and draft steps of a model to begin with; None if they were not measured.

    Args:
        record: what was measured.
        about: `subject` of the model.
    """
    from strata.engine.drafting.timings import Start

    windows = {value["rows"]: value.median * 1e-6 for value in record.find("model.window", about)}
    steps = record.find("model.step", about)
    misses = {value["rows"]: value.median for value in record.find("model.misses", about)}
    return Start(windows, steps[0].median * 1e-6 if steps else None, misses) if 1 in windows else None


def loaded_start(file: "ModelFile", loaded: "Loaded") -> "Start | None":
    """Times of windows and draft steps of a loaded model to begin with; None if they were not measured here."""
    record = warned()
    return None if record is None or record.part("model") is None else start(record, subject_of(file, loaded))


def subject_of(file: "ModelFile", loaded: "Loaded") -> str:
    """A loaded model where it runs, in words."""
    from strata.ops import workers

    its = getattr(loaded.network.ops, "tier", None)
    threads = workers.current().threads if its is None else len(its.options.cpus)
    ssd = loaded.storage is not None and loaded.storage.tier is not None
    device, name = loaded.placement.device, loaded.network.config.name
    return subject(name, file.fingerprint, device, threads, tiers=its is not None, ssd=ssd)


def subject(name: str, fingerprint: str, device: str, threads: int, *, tiers: bool = False, ssd: bool = False) -> str:
    """A model where it runs, in words.

    Args:
        name: of the model.
        fingerprint: of its file.
        device: "cpu", or "cuda:N".
        threads: of the CPU; of no matter where a GPU computes all.
        tiers: whether experts are computed on the CPU and others on the GPU.
        ssd: whether experts are read from the SSD.
    """
    count = f"{threads} thread{'s' * (threads != 1)}"
    where = f"the CPU with {count}" if device == "cpu" else "a GPU" + (f" and the CPU with {count}" if tiers else "")
    return f"{name} ({fingerprint}) on {where}{', some experts on the SSD' if ssd else ''}"


def _host(record: Record, kind: "SlotLayout", threads: int) -> float | None:
    types: dict[str, Any] = {"types": f"{kind.gate}/{kind.up}/{kind.down}", "hidden": kind.hidden, "inner": kind.inner}
    whole = _widest(record.find("cpu.expert", rows=1, **types))
    if whole:
        return whole[0].median * float(whole[0]["threads"]) / threads
    products = _widest(record.find("cpu.product", rows=1))
    rate = cpu_rate(record, _bytes(kind))
    return None if rate is None else sum(_bytes(kind).values()) / (1e3 * rate) * float(products[0]["threads"]) / threads


def _link(record: Record, kind: "SlotLayout") -> float | None:
    types: dict[str, Any] = {"types": f"{kind.gate}/{kind.up}/{kind.down}", "hidden": kind.hidden, "inner": kind.inner}
    whole = record.find("link.expert", **types)
    if whole:
        return whole[0].median
    read = record.find("link.kernel", to="gpu")
    return sum(_bytes(kind).values()) / (1e3 * read[0].median) if read else None


def _bytes(kind: "SlotLayout") -> Counter[str]:
    """Bytes of an expert as the file has it, by type."""
    found: Counter[str] = Counter()
    shapes = (
        (kind.gate, kind.inner, kind.hidden),
        (kind.up, kind.inner, kind.hidden),
        (kind.down, kind.hidden, kind.inner),
    )
    for name, rows, width in shapes:
        found[name] += rows * by_name(name).row_bytes(width)
    return found


def _mean(found: Iterable[tuple[float | None, int]]) -> float | None:
    """Of all layers; None if one is not known."""
    pairs = list(found)
    known = [(value, n) for value, n in pairs if value is not None]
    return sum(value * n for value, n in known) / sum(n for _, n in known) if len(known) == len(pairs) else None


def _widest(values: Iterable[Value]) -> list[Value]:
    """Those with the most threads."""
    found = list(values)
    most = max((value["threads"] for value in found), default=0)
    return [value for value in found if value["threads"] == most]


def _nearest(name: str, known: Mapping[str, Value]) -> str:
    """The measured type that is most like another in bits a weight."""
    if name in known:
        return name
    kind = by_name(name)
    bits = kind.bytes / kind.weights

    def far(other: str) -> float:
        it = by_name(other)
        return abs(it.bytes / it.weights - bits)

    return min(sorted(known), key=far)
