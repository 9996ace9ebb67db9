"""The parts: RAM, a disk, the CPU's kernels, a GPU with its link, and a model."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from strata.lab.calibrate.effort import Effort
from strata.lab.calibrate.subject import Subject
from strata.lab.calibrate.work import Item, Work, value
from strata.lab.rates.rounds import Pace, Sample
from strata.loading.calibration.record import Value

if TYPE_CHECKING:
    import torch

    from strata.experts.pool import Machine

SMALL = 4096
"""Bytes of a short read: a row of the n-gram table takes a block of the disk."""

ROOM = 4
"""A file to read back, or memory to read, takes at most the fourth part of what is free."""

DIRECT_ROUNDS = 3


def ram(machine: "Machine", effort: Effort, pace: Pace) -> Work:
    """Reading main memory with 1 to all threads."""
    from strata.experts.pool import choose
    from strata.lab.rates.ram import counts, memory, ram_read
    from strata.loading.ram import measure

    most = len(choose(machine).cpus)
    several = counts(most, quick=effort.quick)

    def items() -> Iterator[Item]:
        words = memory(min(effort.ram, measure().available // ROOM))
        for count in several:
            cpus = choose(machine, count).cpus

            def one(cpus: tuple[int | None, ...] = cpus) -> list[Value]:
                return [value("ram.read", ram_read(words, cpus, pace), threads=len(cpus))]

            yield Item(f"RAM, {count} thread{'s' * (count > 1)}", one)

    return Work("ram", lambda: "", len(several), items)


def disk(subject: Subject, effort: Effort, pace: Pace) -> Work:
    """Reading the disk that the file is on, or would be."""
    from strata.loading.disks import existing, source

    about = source(subject.folder)
    sizes = (SMALL, *sorted({mix.nbytes for mix in subject.mixes}))

    def items() -> Iterator[Item]:
        import psutil

        from strata.lab.rates.disk import Disk, scratch
        from strata.memory.reads import ReadFile

        with ExitStack() as stack:
            if subject.read is not None and subject.read.stat().st_size >= effort.file // ROOM:
                file = ReadFile(subject.read)
                stack.callback(file.close)
            else:
                folder = existing(subject.folder)
                nbytes = min(effort.file, psutil.disk_usage(str(folder)).free // ROOM)
                file = stack.enter_context(scratch(folder, nbytes, pace))
            for depth in effort.depths:
                reader = Disk(file, depth, pace)
                stack.callback(reader.close)
                for nbytes in sizes:

                    def one(reader: Disk = reader, nbytes: int = nbytes, depth: int = depth) -> list[Value]:
                        return [
                            value("disk.random", reader.random(nbytes), bytes=nbytes, depth=depth, direct=file.direct)
                        ]

                    yield Item(f"disk, {depth} reads of {nbytes:,} bytes at a time", one)
            reader = Disk(file, max(effort.depths), pace)
            stack.callback(reader.close)

            def run() -> list[Value]:
                return [value("disk.sequential", reader.sequential(), depth=max(effort.depths), direct=file.direct)]

            yield Item("disk, in order", run)

    return Work("disk", lambda: about, len(sizes) * len(effort.depths) + 1, items)


def cpu(machine: "Machine", threads: int | None, subject: Subject, effort: Effort, pace: Pace) -> Work:
    """The CPU's kernels by type and rows, and whole experts, on the pool's threads."""
    from strata.experts.pool import Pool, choose

    cpus = choose(machine, threads).cpus
    count = len(cpus)

    def items() -> Iterator[Item]:
        from strata.lab.rates.cpu import Experts, Products

        pool = Pool(cpus)
        try:
            for mix in subject.mixes:

                def whole(mix: Any = mix) -> list[Value]:
                    layer = Experts(mix, effort.matrices, pool, pace)
                    keys = {"types": mix.types, "hidden": mix.hidden, "inner": mix.inner, "threads": count}
                    return [value("cpu.expert", layer.rows(rows), rows=rows, **keys) for rows in effort.rows]

                yield Item(f"CPU, experts of {mix.types}", whole)
            for name in subject.types:

                def one(name: str = name) -> list[Value]:
                    matrix = Products(name, effort.matrices, pool, pace)
                    return [
                        value("cpu.product", matrix.rows(rows), type=name, rows=rows, threads=count)
                        for rows in effort.rows
                    ]

                yield Item(f"CPU, {name}", one)
        finally:
            pool.close()

    return Work("cpu", lambda: "", len(subject.mixes) + len(subject.types), items)


def gpu(device: "torch.device", name: str, subject: Subject, effort: Effort, pace: Pace) -> Work:
    """A card by itself."""
    rows = [(mix, n) for mix in subject.mixes for n in effort.rows]

    def items() -> Iterator[Item]:
        with _card(device, effort, pace) as card:
            yield from its(card)

    def its(card: Any) -> Iterator[Item]:
        yield Item("GPU, reading its memory", lambda: [value("gpu.read", card.read())])
        yield Item("GPU, copying its memory", lambda: [value("gpu.copy", card.copy())])
        yield Item("GPU, products", lambda: [value("gpu.products", card.products(effort.square))])
        yield Item("GPU, starts of kernels", lambda: [value("gpu.start", card.start())])
        yield Item("GPU, replays of graphs", lambda: [value("gpu.replay", card.replay())])
        for mix, n in rows:

            def expert(mix: Any = mix, n: int = n) -> list[Value]:
                keys = {"types": mix.types, "hidden": mix.hidden, "inner": mix.inner}
                return [value("gpu.expert", card.experts(mix, n), rows=n, **keys)]

            yield Item(f"GPU, experts of {mix.types}, {n} row{'s' * (n > 1)}", expert)

    return Work("gpu", lambda: name, 5 + len(rows), items)


def link(device: "torch.device", name: str, subject: Subject, effort: Effort, pace: Pace) -> Work:
    """The link between a card and RAM."""

    def items() -> Iterator[Item]:
        with _card(device, effort, pace) as card:
            yield from its(card)

    def its(card: Any) -> Iterator[Item]:
        for to, words in (("gpu", "to the GPU"), ("ram", "from the GPU")):
            yield Item(f"link, copies {words}", lambda to=to: [value("link.copy", card.link_copy(to), to=to)])  # type: ignore[misc]
            yield Item(f"link, kernels {words}", lambda to=to: [value("link.kernel", card.link_kernel(to), to=to)])  # type: ignore[misc]
        for mix in subject.mixes:

            def expert(mix: Any = mix) -> list[Value]:
                keys = {"types": mix.types, "hidden": mix.hidden, "inner": mix.inner}
                return [value("link.expert", card.bring(mix), **keys)]

            yield Item(f"link, experts of {mix.types}", expert)

    return Work("link", lambda: name, 4 + len(subject.mixes), items)


@contextmanager
def _card(device: "torch.device", effort: Effort, pace: Pace) -> Iterator[Any]:
    """The card, when its turn has come: torch and Triton take a while to be there."""
    from strata.lab.rates.gpu import Gpu

    card = Gpu(device, pace, effort.vram, effort.pinned)
    try:
        yield card
    finally:
        card.close()


def samples(pace: Pace, work: Callable[[], tuple[float, ...]]) -> list[Sample]:
    """Of work that measures several numbers at once: a sample of each."""
    work()
    rounds = []
    for _ in range(max(DIRECT_ROUNDS, pace.rounds)):
        pace.check()
        rounds.append(work())
    return [Sample.of(numbers) for numbers in zip(*rounds, strict=True)]
