"""How long the host takes to answer a message about missing experts: microseconds by experts and rows, arms in turn.

    python bench/host_answers.py [--arm NAME=CHECKOUT ...] [--threads 16 ...] [--copy] [--json FILE]

A real loop on random weights of the released shapes, each message about other experts, of more memory than caches hold:
each is for one row of a window of one, two of four, three of eight. What counts is the host's own time, from when it
sees a message until it says that it is answered. Whoever raises messages looks all the time if the threads leave it a
processor ("trip" is its time), and sleeps meanwhile if they do not. `--copy` has a GPU copy pinned memory all along.

An arm is a process with the code of one checkout (this one if left empty). Only one works at a time; in every round
each takes its turn, the order turning around. Differences are those to the first arm, the median of rounds. Arms have
to answer with the same bytes.
"""

import argparse
import ctypes
import hashlib
import itertools
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "src"))  # an arm finds its own checkout's first

import numpy as np
from numba import njit

from arms.process import Process
from strata.experts.compute import Expert, Stored
from strata.experts.kernels.memory import call, carray, longs_at, peek
from strata.experts.misses import HostLoop, Mailbox
from strata.experts.misses import mailbox as box
from strata.experts.misses.answer import BUSY
from strata.experts.pool import choose, read
from strata.experts.pool.atomics import load, pause, store
from strata.formats import by_name
from strata.lab.doorbell import Deck

TYPES, HIDDEN, INNER, TOPK = ("IQ3_XXS", "IQ3_XXS", "IQ4_NL"), 2560, 640, 10
LISTS, ROWS = (1, 2, 3, 4, 6, 10), (1, 4, 8)
GAP_US = 100.0  # between two messages: a layer's other work
WARM = 8  # messages before those that count
COPIED = 256 << 20
PASSED = ("threads", "lists", "rows", "copy", "experts", "messages")


def layer(experts: int) -> Expert:
    """Random bytes with small scales; experts repeat after a few, but each lies in memory of its own."""
    rng, parts = np.random.default_rng(1), []
    for name, (n, k) in zip(TYPES, ((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)), strict=True):
        kind = by_name(name)
        some = rng.integers(0, 256, (4, n, k // kind.weights, kind.bytes), dtype=np.uint8)
        some[..., :2] = np.frombuffer(np.float16(1e-3).tobytes(), np.uint8)
        raw = np.empty((experts, n, some[0, 0].size), np.uint8)
        for i in range(experts):
            raw[i] = some[i % len(some)].reshape(n, -1)
        parts.append(Stored(kind, raw))
    return Expert(*parts)


def decks(mailbox: Mailbox, given: dict[str, Any]) -> dict[tuple[int, int], tuple[Deck, list[list[int]]]]:
    """Messages by rows and experts, and whose rows each asks for; no expert comes again before all others have come."""
    rng, found, experts = np.random.default_rng(2), {}, given["experts"]
    order = itertools.cycle(rng.permutation(experts).tolist())
    for rows, count in itertools.product(given["rows"], given["lists"]):
        deck, asked = Deck.empty(mailbox, given["messages"]), []
        for card in range(given["messages"]):
            q = rng.integers(-127, 128, (rows, HIDDEN)).astype(np.int8)
            s = rng.uniform(1e-3, 1e-2, (rows, HIDDEN // 32)).astype(np.float32)
            free, missing = [t * TOPK for t in range(rows)], []
            for i in range(count):
                pairs = []
                for visit in range(1 + rows // 4):
                    t = (i + visit) % rows
                    pairs.append(free[t])
                    free[t] += 1
                missing.append((next(order), pairs))
            deck.write(card, 0, q, s, missing)
            asked.append([pair for _, pairs in missing for pair in pairs])
        found[rows, count] = deck, asked
    return found


def _raiser() -> Any:
    header, rung, done = box.HEADER, box.RUNG, box.DONE

    def now(facts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
        call(peek(facts), 1, facts + 32, 0)
        return peek(facts + 32) * 1_000_000_000 + peek(facts + 40)

    now = njit(now)

    def run(memory, messages, words, count, first, busy, found, facts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        # facts: clock_gettime, nanosleep or 0, nanoseconds of the gap and of patience, room for a time, a time to sleep
        took, to = carray(longs_at(found), 2 * count), carray(longs_at(memory + header), words)
        for r in range(count):
            source = carray(longs_at(messages + 8 * words * r), words)
            for i in range(words):
                to[i] = source[i]
            began = now(facts)
            while now(facts) - began < peek(facts + 16):
                pause()
            before, began = load(busy), now(facts)
            store(memory + rung, first + r)
            while load(memory + done) < first + r:
                if peek(facts + 8) != 0:
                    call(peek(facts + 8), facts + 48, 0, 0)
                pause()
                if now(facts) - began > peek(facts + 24):
                    return r
            took[2 * r + 1] = now(facts) - began
            took[2 * r] = load(busy) - before
        return count

    kept = njit(nogil=True)(run)
    kept.compile(f"int64({', '.join(['int64'] * 8)})")
    return kept


class Copying:
    """Pinned memory goes to a GPU all the time."""

    def __init__(self) -> None:
        import torch

        self._torch, self.gb = torch, 0.0
        self._from = torch.ones(COPIED, dtype=torch.uint8).pin_memory()
        self._to = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
        self._stop = threading.Event()

    def _run(self) -> None:
        stream, under_way = self._torch.cuda.Stream(), []
        while not self._stop.is_set():
            with self._torch.cuda.stream(stream):
                self._to.copy_(self._from, non_blocking=True)
                under_way.append(self._torch.cuda.Event(blocking=True))
                under_way[-1].record()
            if len(under_way) > 2:
                under_way.pop(0).synchronize()
                self.gb += COPIED / 1e9
        stream.synchronize()

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Work:
    """An arm's own process.

    Args:
        given: the command's arguments.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self._mailbox = Mailbox(TOPK, HIDDEN)
        room = np.zeros(self._mailbox.nbytes + 512, np.uint8)
        start = -room.ctypes.data % 512
        self._box, self._run = room[start : start + self._mailbox.nbytes], _raiser()
        layers, here = [layer(given["experts"])], read()
        self._everywhere, self._loops = {cpu.number for cpu in here.cpus}, {}
        for threads in given["threads"] or [len(choose(here).cpus)]:
            cpus = choose(here, threads).cpus
            left = sorted(self._everywhere - set(cpus)) if None not in cpus else []
            self._loops[threads] = HostLoop(self._mailbox, self._box, layers, cpus), left
        self._decks = decks(self._mailbox, given)
        self._copying = Copying() if given["copy"] else None

    def _raise(self, loop: HostLoop, deck: Deck, count: int, *, sleeps: bool) -> np.ndarray:
        """Host's and raiser's nanoseconds of so many messages."""
        library = ctypes.CDLL(None)
        address = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (library.clock_gettime, library.nanosleep)]
        facts = np.array([address[0], address[1] * sleeps, round(GAP_US * 1e3), 60_000_000_000, 0, 0, 0, 1_000_000])
        found = np.zeros((count, 2), np.int64)
        busy = loop._desk.address + BUSY  # noqa: SLF001
        first, words = int(self._mailbox.words(self._box)[0]) + 1, deck.messages.shape[1] // 8
        where = self._box.ctypes.data, deck.messages.ctypes.data
        loop.ring()
        done = self._run(*where, words, count, first, busy, found.ctypes.data, facts.ctypes.data)
        if done != count or loop.fault():
            raise SystemExit(f"message {done} of {count} was not answered: {loop.fault()}")
        return found

    def digest(self) -> str:
        """Of rows that come back, of a message of every cell; one, whatever the number of threads."""
        found, m = set(), self._mailbox
        results = m.view(self._box, m.results, np.float32, m.pairs, HIDDEN)
        for loop, _ in self._loops.values():
            loop.start()
            sums = hashlib.sha256()
            for deck, asked in self._decks.values():
                results[:] = 0
                self._raise(loop, deck, 1, sleeps=True)
                sums.update(results[asked[0]].tobytes())
            loop.close()
            found.add(sums.hexdigest())
        return " ".join(sorted(found))

    def round(self) -> dict[str, Any]:
        """Nanoseconds of each message, by threads, rows and experts."""
        found: dict[str, Any] = {}
        for threads, (loop, left) in self._loops.items():
            loop.start()
            os.sched_setaffinity(0, left[-1:] or self._everywhere)
            for (rows, count), (deck, _) in self._decks.items():
                self._raise(loop, deck, min(WARM, len(deck.messages)), sleeps=not left)
                if self._copying is None:
                    times = self._raise(loop, deck, len(deck.messages), sleeps=not left)
                else:
                    with self._copying as copying:
                        began, before = time.perf_counter(), copying.gb
                        times = self._raise(loop, deck, len(deck.messages), sleeps=not left)
                        found.setdefault("copied", []).append((copying.gb - before) / (time.perf_counter() - began))
                host, trip = times.T.tolist()
                found[f"{threads} {rows} {count}"] = {"host": host, "trip": trip if left else []}
            os.sched_setaffinity(0, self._everywhere)
            loop.close()
        return found


class Arm(Process):
    """A process that measures when it is told to."""

    def __init__(self, spec: str, given: dict[str, Any]) -> None:
        name, _, checkout = spec.partition("=")
        super().__init__(name, __file__, checkout, given)

    def quartiles(self, cell: str, which: str = "host") -> list[float]:
        """Microseconds of all messages of all rounds; three of them, the median in the middle."""
        times = [t / 1e3 for one in self.rounds for t in one[cell][which]]
        return [round(float(q), 2) for q in np.quantile(times, (0.25, 0.5, 0.75))] if times else []

    def beside(self, other: "Arm", cell: str) -> float:
        """Microseconds more than another: the median of rounds."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        each = [statistics.median(a[cell]["host"]) - statistics.median(b[cell]["host"]) for a, b in pairs]
        return round(statistics.median(each) / 1e3, 2)


def line(points: list[tuple[int, float]]) -> dict[str, float]:
    """Microseconds of nothing, and of each further expert: the median of slopes, so that no cell bends it."""
    slopes = [(b - a) / (n - m) for (m, a), (n, b) in itertools.combinations(points, 2)]
    each = statistics.median(slopes) if slopes else points[0][1]
    return {
        "fixed": round(statistics.median(taken - each * count for count, taken in points), 2), "each": round(each, 2)
    }  # fmt: skip


def report(arms: list[Arm], lists: list[int], windows: list[int]) -> dict[str, Any]:
    """Print what was found, and return it."""
    found: dict[str, Any] = {arm.name: {} for arm in arms}
    for threads in dict.fromkeys(cell.split()[0] for cell in arms[0].rounds[0] if cell != "copied"):
        print(f"{threads} threads, us     " + "".join(f"{arm.name:>36}" for arm in arms))
        for rows in windows:
            points: dict[str, list[tuple[int, float]]] = {arm.name: [] for arm in arms}
            for count in lists:
                cell, shown = f"{threads} {rows} {count}", []
                for arm in arms:
                    (low, middle, high), more = arm.quartiles(cell), arm.beside(arms[0], cell)
                    trip = arm.quartiles(cell, "trip")
                    found[arm.name][cell] = {"host": [low, middle, high], "trip": trip, "beside": more}
                    points[arm.name].append((count, middle))
                    text = f"{middle:.1f} ({low:.1f} to {high:.1f})"
                    shown.append(text if arm is arms[0] else f"{text} {more:+6.1f}")
                print(f"{rows} rows, {count:2} experts" + "".join(f"{text:>36}" for text in shown))
            lines = {name: line(of) for name, of in points.items()}
            for name, one in lines.items():
                found[name][f"{threads} {rows} line"] = one
            shown = [f"{one['fixed']:.1f} + {one['each']:.1f} each" for one in lines.values()]
            print(f"{rows} rows, a line    " + "".join(f"{text:>36}" for text in shown), flush=True)
    for arm in arms:
        copied = [speed for one in arm.rounds for speed in one.get("copied", [])]
        if copied:
            found[arm.name]["copied_gb_s"] = round(statistics.median(copied), 1)
            print(f"{arm.name}: the link copied {found[arm.name]['copied_gb_s']} GB/s")
    return found


def processor() -> str:
    """Its name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((one.partition(":")[2].strip() for one in lines if one.startswith("model name")), "unknown")


def main() -> int:
    """Start the arms, let them take turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append")
    parser.add_argument("--threads", type=int, nargs="+")
    parser.add_argument("--lists", type=int, nargs="+", default=LISTS, help="experts of a message")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--copy", action="store_true")
    parser.add_argument("--experts", type=int, default=512)
    parser.add_argument("--messages", type=int, default=48, help="of a cell and round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work = Work(json.loads(given.work))
        print(json.dumps(work.digest()), flush=True)
        for _ in sys.stdin:
            print(json.dumps(work.round()), flush=True)
        return 0
    load_before = os.getloadavg()[0]
    arms = [Arm(spec, {name: getattr(given, name) for name in PASSED}) for spec in given.arm or ["now="]]
    digests = {arm.name: arm.answer() for arm in arms}
    for turn in range(given.rounds):
        for arm in arms if turn % 2 else arms[::-1]:
            arm.measure()
    for arm in arms:
        arm.end()
    found, one = report(arms, given.lists, given.rows), {d for digest in digests.values() for d in digest.split()}
    print(f"bytes are {'the same' if len(one) == 1 else f'NOT the same: {digests}'}")
    if given.json:
        conditions = {
            "command": "python bench/host_answers.py " + " ".join(sys.argv[1:]),
            "processor": processor(), "cpus": len(os.sched_getaffinity(0)), "load_before": round(load_before, 1),
            "unit": "microseconds: quartiles by threads, rows and experts; line: a fixed cost and each expert",
        }  # fmt: skip
        text = json.dumps({"conditions": conditions, "arms": found, "digests": digests}, indent=1) + "\n"
        given.json.write_text(text, "utf-8")
    return 0 if len(one) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
