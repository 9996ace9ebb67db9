"""`strata bench`: measure decoding, reading and both at once."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.table import table
from strata.cli.usage import UsageError
from strata.errors import StrataError

if TYPE_CHECKING:
    from strata.cli.bench.summary import Row
    from strata.cli.bench.workloads import Bench
    from strata.worker import Ready


def bench(  # noqa: D417  # the context is no argument of a command line
    workload: Literal["all", "decode", "prompt", "mixed", "roofline"] = "all",
    /,
    *,
    rounds: int = 5,
    tokens: int = 128,
    prompt_tokens: int = 1024,
    drafts: int = 7,
    save: Path | None = None,
    trace: Path | None = None,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Measure how fast this machine runs the model.

    decode: one answer, without and with drafts. prompt: reading a long prompt, new and kept. mixed: several
    conversations at once, alone and while a long prompt is read. The arms of a workload take turns, forwards and
    backwards, after one round that does not count. Shown are medians with their 95% intervals, and ratios of values of
    the same round. roofline, which "all" leaves out: where the time of a window goes on a GPU, kernel by kernel, and
    how far each is from the memory's bandwidth, for 1, 4 and 8 rows behind a long prompt.

    Where experts lie in tiers, the last windows' hit rate, misses by tier, union of experts and waits are shown, too.

    Args:
        workload: What to measure.
        rounds: Values of each arm.
        tokens: Tokens of an answer.
        prompt_tokens: Tokens of a long prompt.
        drafts: Most tokens guessed ahead in the arm with drafts, 1 to 7.
        save: Write values, conditions and versions to this file as JSON.
        trace: Write what the last windows did to this file; Perfetto and Chrome show it.
    """
    for name, value in (("rounds", rounds), ("tokens", tokens), ("prompt-tokens", prompt_tokens), ("drafts", drafts)):
        least = {"tokens": 2, "prompt-tokens": 16}.get(name, 1)
        if value < least:
            raise UsageError(f"--{name} must be at least {least}, not {value}")
    from strata.engine.drafting.options import DEEPEST

    if drafts > DEEPEST:
        raise UsageError(f"--drafts must be at most {DEEPEST}, not {drafts}")
    settings = context.resolve().settings
    if workload == "roofline":
        from strata.cli.bench.roofline import measured_roofline

        return measured_roofline(settings, prompt_tokens, save, context)
    from strata.cli.bench.met import as_text as experts_as_text
    from strata.cli.bench.met import met
    from strata.cli.bench.workloads import Bench
    from strata.cli.session import load_model
    from strata.cli.trace import Traced
    from strata.worker import Client

    # What was learned from other texts would make two measurements differ, and these texts are nobody's.
    plain = replace(settings, expert_profile=False)
    with Traced(trace) as traced, load_model(plain, context.output) as model:
        assert isinstance(model.source, Client)
        room = model.ready.context
        if prompt_tokens >= room or tokens >= room // 2:
            raise UsageError(f"the context of {model.name} holds {room} tokens; ask for shorter prompts and answers")
        measured = Bench(model.source, model.file, tokens, prompt_tokens, drafts)
        before = _load()
        rows = _measure(measured, workload, rounds, context)
        result: dict[str, Any] = {
            "conditions": conditions(model.name, model.ready, settings.threads, rounds, before),
            "sizes": {"tokens": tokens, "prompt_tokens": prompt_tokens},
            "rows": [asdict(row) for row in rows],
        }
        found = met(model.trace())
        if found:
            result["experts"] = [one.shown() for one in found]
        traced.write(model.trace)
    write(save, result)
    if context.output.json:
        context.output.record(result)
    else:
        context.output.text(as_text(rows, result["conditions"]) + experts_as_text(found))
    return 0


def write(path: Path | None, result: dict[str, Any]) -> None:
    """Keep a result, if it is to be kept.

    Raises:
        StrataError: the file cannot be written.
    """
    if path is None:
        return
    try:
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StrataError(f"the result cannot be written to {path}: {error.strerror or error}") from error


def _measure(bench: "Bench", wanted: str, rounds: int, context: Context) -> "list[Row]":
    from strata.cli.bench.summary import order, summarise
    from strata.cli.progress import Bar

    chosen = [w for name, some in bench.workloads().items() if wanted in {"all", name} for w in some]
    total = sum(len(workload.arms) for workload in chosen) * (rounds + 1)
    rows: list[Row] = []
    done = 0
    bar = Bar("Measuring")
    with bar:
        for workload in chosen:
            values: dict[str, list[float]] = {arm: [] for arm in workload.arms}
            for turn in range(-1, rounds):
                for arm in order(list(workload.arms), turn):
                    value = workload.arms[arm]()
                    if turn >= 0:
                        values[arm].append(value)
                    done += 1
                    bar.step(done, total)
            rows += summarise(workload.name, workload.unit, values)
    if rounds < 5:
        context.output.note("warning: intervals of fewer than 5 rounds say little")
    return rows


def conditions(model: str, ready: "Ready", threads: int | None, rounds: int, before: float | None) -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    from importlib.metadata import version

    from strata.cli.doctor.facts import gather

    facts = gather()
    versions = {name: version(name) for name in ("torch", "numpy", "numba")}
    return {
        "model": model,
        "fingerprint": ready.fingerprint,
        "device": ready.device,
        "placed": ready.placed,
        "threads": threads,
        "rounds": rounds,
        "cpu": facts.cpu,
        "cores": facts.cores,
        "features": list(facts.features),
        "memory": facts.memory.total,
        "gpus": [gpu.name for gpu in facts.gpus],
        "system": facts.system,
        "versions": {"strata": facts.strata, "python": facts.python, **versions},
        "load_before": before,
        "load_after": _load(),
    }


def _load() -> float | None:
    """How many other processes want the processor, on average of the last minute."""
    import os

    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def as_text(rows: "list[Row]", conditions: dict[str, Any]) -> str:
    """A table for people."""
    lines = []
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} x ({row.ratio_low:.2f}-{row.ratio_high:.2f})"
        digits = 3 if row.unit == "s" else 1
        value = f"{row.median:.{digits}f} ({row.low:.{digits}f}-{row.high:.{digits}f})"
        lines.append((row.workload, row.arm, value, row.unit, ratio))
    head = ("Workload", "Arm", "Median (95%)", "Unit", "Against the first arm")
    versions = ", ".join(f"{name} {number}" for name, number in conditions["versions"].items())
    load = f"load {conditions['load_before']} before and {conditions['load_after']} after"
    where = conditions["cpu"] if conditions["device"] == "cpu" else conditions["placed"]
    return table(head, lines, right=(2,)) + f"\n{conditions['model']} on {where}; {load}\n{versions}\n"
