"""Kernels held against what was recorded of them."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from strata.lab.codegen.baseline import Baseline
from strata.lab.codegen.build import build
from strata.lab.codegen.counts import Counts, count, forbidden
from strata.lab.codegen.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as recorded.

    Attributes:
        kernel: its name.
        architecture: compute capability times ten.
        what: which count, or what else.
        found: now.
        recorded: in the baseline; None if there was none.
    """

    kernel: str
    architecture: int
    what: str
    found: int | str
    recorded: int | None = None

    def __str__(self) -> str:
        where = f"{self.kernel} on sm_{self.architecture}"
        if isinstance(self.found, str):
            return f"{where}: {self.what}: {self.found}"
        if self.recorded is None:
            return f"{where}: {self.what} is {self.found}, nothing recorded"
        change = f", {self.found / self.recorded - 1:+.0%}" if self.recorded else ""
        return f"{where}: {self.what} is {self.found}, recorded {self.recorded}{change}"


Measured = dict[tuple[str, int], Counts]


def measure(kernels: Iterable[Kernel], workers: int = 2) -> tuple[Measured, list[Finding]]:
    """Compile every kernel for every architecture it is for.

    Returns:
        Counts by (name, architecture), and findings that need no baseline: what does not compile, and what kernels
        with promised bytes may not contain.
    """
    jobs = [(kernel, architecture) for kernel in kernels for architecture in kernel.architectures]
    measured: Measured = {}
    findings: list[Finding] = []
    with ThreadPoolExecutor(workers) as pool:
        for (kernel, architecture), (counts, faults) in zip(jobs, pool.map(lambda job: _one(*job), jobs), strict=True):
            findings += [Finding(kernel.name, architecture, *fault) for fault in faults]
            if counts is not None:
                measured[kernel.name, architecture] = counts
    return measured, findings


def compare(measured: Mapping[tuple[str, int], Counts], baseline: Baseline) -> list[Finding]:
    """Every count that differs from the baseline, in either direction, and every entry only one side has."""
    findings: list[Finding] = []
    for (name, architecture), counts in measured.items():
        recorded = baseline.get((name, architecture))
        found = counts.flat()
        if recorded is None:
            findings.append(Finding(name, architecture, "instructions", found["instructions"]))
            continue
        before = recorded.flat()
        findings += [
            Finding(name, architecture, what, found.get(what, 0), before.get(what, 0))
            for what in sorted(found.keys() | before.keys())
            if found.get(what, 0) != before.get(what, 0)
        ]
    gone = sorted(baseline.keys() - measured.keys())
    findings += [Finding(name, architecture, "kernel", "recorded, but no longer there") for name, architecture in gone]
    return findings


def _one(kernel: Kernel, architecture: int) -> tuple[Counts | None, list[tuple[str, str]]]:
    try:
        built = build(kernel, architecture)
    except Exception as error:  # noqa: BLE001  # Triton's compiler raises whatever its passes raise
        return None, [("does not compile", f"{type(error).__name__}: {error}"[:300])]
    faults = [("forbidden where bytes are promised", one) for one in forbidden(built)] if kernel.normative else []
    return count(built, kernel), faults
