"""Numbers of a run, and the promises they keep or break."""

import math
import statistics
from dataclasses import dataclass
from typing import Any

from soaking.crowd import Tally
from soaking.watch import Ends, Health, Process, quantile, slope

MB = 1 << 20
HEALTH = 0.2
"""Seconds that 99 of 100 looks at health may take."""

LEAK = 1.0
"""MB a minute: memory leaks if it surely grows by more."""

BACK = 32.0
"""MB that may be taken at the end beyond what was taken after the warm-up."""

EVERY = 10
"""Seconds between two samples of memory that are kept."""

FEW = 4
"""Files that may be open beyond those before; a probe's connection is one."""

MANY = 40
"""Threads beyond those before: the server's pool for what would hold up its loop, made as it is needed."""


@dataclass(frozen=True)
class Promise:
    """One promise.

    Attributes:
        name: in words.
        number: what was measured.
        kept: whether it holds; None where the run is too short to say.
        timing: whether a machine that is busy with other things can break it.
    """

    name: str
    number: str
    kept: bool | None
    timing: bool = False

    def __str__(self) -> str:
        return f"{ {True: 'kept  ', False: 'BROKEN', None: 'short '}[self.kept] } {self.name}: {self.number}"


def together(engines: list[Any]) -> Any:
    """All engines as if they were one; of a single one, itself."""
    if len(engines) == 1:
        return engines[0]
    cancels = [one["cancels"] for one in engines]
    added = {name: sum(one[name] for one in engines) for name in ("waiting", "running", "restarts", "generated_tokens")}
    return {
        **engines[0],
        **added,
        "phases": {},
        "cancels": {
            **{name: sum(one[name] for one in cancels) for name in ("count", "open")},
            **{name: max(one[name] for one in cancels) for name in ("slowest", "longest")},
            "units": [sum(column) for column in zip(*(one["units"] or [0] * 4 for one in cancels), strict=True)],
        },
    }


def measured(
    tally: Tally, health: Health, ends: Ends, processes: dict[str, Process], seen: dict[str, Any]
) -> dict[str, Any]:
    """Everything as plain numbers."""
    engine, last = together(seen["last"]["engines"]), seen["last"]
    first = together(seen["first"]["engines"])
    windows = engine["phases"]
    units = sum(windows.get(phase, 0.0) for phase in ("read", "draft", "run", "verify", "commit", "wait"))
    numbers: dict[str, Any] = {
        "seconds under load": round(seen["loaded"], 1),
        "answers": tally.counts["answers"],
        "answers a second": round(tally.counts["answers"] / seen["loaded"], 2),
        "seconds of an answer (median, p99)": [round(quantile(tally.seconds, q), 2) for q in (0.5, 0.99)],
        **{name: count for name, count in sorted(tally.counts.items()) if name != "answers"},
        "most answered or read at once": ends.most,
        "most waiting at once": ends.waiting,
        "tokens of answers": engine["generated_tokens"] - first["generated_tokens"],
        "tokens a second": round((engine["generated_tokens"] - first["generated_tokens"]) / seen["loaded"], 1),
        "seconds the engine worked": round(units, 1),
        "health looks": len(health.seconds),
        "health not 200": health.bad,
        **{
            f"health {name} (ms)": round(1000 * quantile(health.seconds, q), 1)
            for name, q in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("most", 1.0))
        },
        **_cancels(tally, ends, engine, first, seen),
    }
    sizes = seen["sizes"]
    if sizes.taken or sizes.refused:
        numbers |= {
            "sizes taken while it ran": sizes.taken,
            "sizes refused": dict(sizes.refused),
            "seconds of another size (median, most)": [round(quantile(sizes.seconds, q), 3) for q in (0.5, 1.0)],
        }
    for name, process in processes.items():
        numbers |= _memory(name, process, tally, seen)
    if seen["models"]:  # an engine that is loaded anew counts anew
        numbers |= {"tokens of answers": None, "tokens a second": None, "seconds the engine worked": None}
        numbers["models loaded, unloaded"] = list(seen["loads"])
    return numbers | {
        "requests under way at the end": len(last["requests"]) + engine["waiting"] + engine["running"],
        "kept at the end: conversations, places to go on from, MB, given up": [
            engine["cache"]["conversations"], engine["cache"]["checkpoints"],
            round(engine["cache"]["ram_bytes"] / MB, 1), engine["cache"]["evicted"],
        ],
        "engine restarts": engine["restarts"],
        "right answers alone afterwards": seen["again"],
        "exit code": seen["exit code"],
        "seconds to end": round(seen["seconds to end"], 2),
        "tracebacks in the log": seen["log"].count("Traceback"),
    }  # fmt: skip


def _cancels(tally: Tally, ends: Ends, engine: Any, first: Any, seen: dict[str, Any]) -> dict[str, Any]:
    """From a client's leaving to the server's knowing it, and from there to the engine's end of the work."""
    cancels, units = engine["cancels"], engine["cancels"]["units"]
    delays: dict[str, list[float]] = {}
    never = 0
    for name, left, how in tally.left:
        if name in ends.ended:
            ended, outcome = ends.ended[name]
            if outcome == "disconnect" or ended > left:  # else all of it was on its way to the client already
                delays.setdefault(how, []).append(max(0.0, ended - left))
        elif name not in seen["log"]:
            never += 1
    every = [delay for some in delays.values() for delay in some]
    return {
        "requests ended because nobody wanted them": cancels["count"] - first["cancels"]["count"],
        "of these, with 0, 1, 2, 3 and more units of work after the order": [
            now - before for now, before in zip(units, first["cancels"]["units"], strict=True)
        ],
        "slowest order to the engine (ms)": round(1000 * cancels["slowest"], 1),
        "longest from the order to the engine's last word (ms)": round(1000 * cancels["longest"], 1),
        "such requests still open": cancels["open"],
        **{
            f"ms until the server ended one left {how} (median, p99, most; of)": [
                *(round(1000 * quantile(some, q), 1) for q in (0.5, 0.99, 1.0)),
                len(some),
            ]
            for how, some in sorted(delays.items())
        },
        "ms until the server ended one that was left (median)": round(1000 * quantile(every, 0.5), 2),
        "ms until the server ended one that was left (p99)": round(1000 * quantile(every, 0.99), 1),
        "ms of a window or pass (mean)": round(seen["window"], 2),
        "left requests that the server's log does not name": never,
    }


def _memory(name: str, process: Process, tally: Tally, seen: dict[str, Any]) -> dict[str, Any]:
    start = seen["began"] + seen["warm"] * (seen["until"] - seen["began"])
    samples = [one for one in process.samples if start <= one[0] <= seen["until"]]
    rise, half = slope([(when, float(resident)) for when, resident, _, _ in samples])
    requests = sum(count for what, count in tally.counts.items() if what.startswith("begun: "))
    each = requests / max(seen["loaded"], 1e-9)
    level = statistics.median([one[1] for one in samples[: max(1, len(samples) // 4)]]) if samples else 0
    most = max(process.samples, default=(0, 0, 0, 0), key=lambda one: one[1])
    before, after = seen["before"][name], seen["after"][name]
    return {
        f"{name} memory: before, after the warm-up, most, at the end (MB)": [
            round(x / MB, 1) for x in (before[0], level, most[1], after[0])
        ],
        f"{name} slope (KB/minute)": round(rise * 60 / 1024, 1),
        f"{name} slope, half of its 95% interval (KB/minute)": round(half * 60 / 1024, 1) if half < math.inf else None,
        f"{name} slope (bytes/request)": round(rise / each) if each else None,
        f"{name} memory every {EVERY} s (MB)": [round(one[1] / MB, 1) for one in process.samples[::EVERY]],
        f"{name} files: before, most, at the end": [
            before[1], max((one[2] for one in process.samples), default=0), after[1],
        ],
        f"{name} threads: before, most, at the end": [
            before[2], max((one[3] for one in process.samples), default=0), after[2],
        ],
    }  # fmt: skip


def _sizes(numbers: dict[str, Any]) -> list[Promise]:
    """Of other shares of a GPU's memory, if any were asked for."""
    if "sizes refused" not in numbers:
        return []
    refused, taken = sum(numbers["sizes refused"].values()), numbers["sizes taken while it ran"]
    return [Promise("every other size is taken", f"{taken} taken, {refused} refused", taken > 0 == refused)]


def promises(numbers: dict[str, Any], tally: Tally, *, short: bool) -> list[Promise]:
    """Each with its number.

    Args:
        numbers: of `measured`.
        tally: the clients'.
        short: whether the run is too short to say anything of memory.
    """
    counts = tally.counts
    units = numbers["of these, with 0, 1, 2, 3 and more units of work after the order"]
    health, looks = numbers["health p99 (ms)"], numbers["health looks"]
    closing = numbers["such requests still open"] + numbers["requests under way at the end"]
    known = numbers["ms until the server ended one that was left (median)"]
    late = numbers["ms until the server ended one that was left (p99)"]
    window = numbers["ms of a window or pass (mean)"]
    never = numbers["left requests that the server's log does not name"]
    begun = {name: counts[name] for name in ("answers", "left: while it was answered", "begun: garbage")}

    def zero(name: str, count: int, of: str = "") -> Promise:
        return Promise(name, f"{count}{of}", count == 0)

    found = [
        zero("every whole answer is the right one, byte for byte", counts["wrong"], f" wrong of {counts['answers']}"),
        zero("no answer and no stream is lost", counts["lost"], " lost"),
        zero("no two answers or requests have one name", counts["mixed"], " mixed"),
        zero("health is always 200", sum(numbers["health not 200"].values()), f" others in {looks} looks"),
        Promise(f"99 of 100 looks at health take less than {HEALTH * 1e3:g} ms", f"{health} ms", health < HEALTH * 1e3,
            timing=True),
        zero("a cancelled request does no more than the window under way", sum(units[2:]), f" of {sum(units)} do more"),
        Promise("the server knows that a client left within a window, 99 of 100 times within 200 ms",
            f"median {known} ms, p99 {late} ms, a window {window} ms", known <= window and late < HEALTH * 1e3,
            timing=True),
        zero("every request that was left is over", never + closing, " are not"),
        zero("the engine never dies", numbers["engine restarts"], " restarts"),
        zero("nothing unexpected is in the log", numbers["tracebacks in the log"], " tracebacks"),
        Promise("alone again, it says what it said before", str(numbers["right answers alone afterwards"]).lower(),
            numbers["right answers alone afterwards"]),
        *_sizes(numbers),
        Promise("SIGTERM ends it with code 0 within 7 s", f"code {numbers['exit code']}, {numbers['seconds to end']} s",
            numbers["exit code"] == 0 and numbers["seconds to end"] < 7, timing=True),
        Promise("answers, leaving and garbage took place", str(begun),
            all(begun.values()) or (None if short else False)),
    ]  # fmt: skip
    if "models loaded, unloaded" in numbers:
        each = {name: count for name, count in counts.items() if name.startswith("answers of ")}
        loads = numbers["models loaded, unloaded"]
        found.append(Promise("every model answers, and each comes and goes", f"{each}, {loads[0]} loads",
            (len(each) > 1 and min(loads) > len(each)) or (None if short else False)))  # fmt: skip
    for name in ("server", "engine"):
        if f"{name} slope (KB/minute)" in numbers:
            found += _held(name, numbers, short=short)
    return found


def _held(name: str, numbers: dict[str, Any], *, short: bool) -> list[Promise]:
    rise = numbers[f"{name} slope (KB/minute)"]
    half = numbers[f"{name} slope, half of its 95% interval (KB/minute)"]
    before, level, most, after = numbers[f"{name} memory: before, after the warm-up, most, at the end (MB)"]
    files = numbers[f"{name} files: before, most, at the end"]
    threads = numbers[f"{name} threads: before, most, at the end"]
    sure = (rise - (half or 0.0)) / 1024
    return [
        Promise(f"the {name}'s memory does not grow by {LEAK:g} MB a minute", f"{rise} ± {half} KB a minute",
            None if short else sure < LEAK),
        Promise(f"the {name}'s memory is back to within {BACK:g} MB",
            f"{before} before, {level} after the warm-up, {most} at most, {after} MB at the end",
            None if short else after < level + BACK),
        Promise(f"the {name} has its files back", f"{files[0]} before, {files[1]} at most, {files[2]} at the end",
            files[2] <= files[0] + FEW),
        Promise(f"the {name} has its threads back",
            f"{threads[0]} before, {threads[1]} at most, {threads[2]} at the end",
            threads[2] <= threads[0] + MANY),
    ]  # fmt: skip
