"""The code-generation check sees what it is for: a kernel made worse for one architecture only."""

from dataclasses import replace

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

from strata.lab.codegen.build import build
from strata.lab.codegen.check import Finding, compare, measure
from strata.lab.codegen.counts import count, forbidden
from strata.lab.codegen.kernel import ARCHITECTURES, Kernel


@triton.jit
def _read_only(p):
    """Four words over the read-only path."""
    return tl.inline_asm_elementwise("ld.global.nc.b32 $0, [$1];", "=r,l", [p], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def _sums(x, y, n, ARCH: tl.constexpr, SLOW_ON: tl.constexpr, PLAIN_ON: tl.constexpr):
    """Sums of 256 words a program; worse on purpose on one architecture."""
    total = tl.zeros([256], tl.int32)
    at = tl.arange(0, 256)
    for i in range(n):
        if ARCH == PLAIN_ON:  # noqa: SIM108  # Triton chooses a branch of a statement at compile time
            value = tl.load(x + i * 256 + at)
        else:
            value = _read_only(x + i * 256 + at)
        total += value
        if ARCH == SLOW_ON:
            total = (total ^ (value << 3)) + (value * 7)
    tl.store(y + at, total)


@triton.jit
def _contracts(x, y, z):
    at = tl.arange(0, 128)
    tl.store(z + at, tl.fma(tl.load(x + at), tl.load(y + at), 1.0))


def _kernels(slow_on: int = 0, plain_on: int = 0) -> list[Kernel]:
    signature = {"x": "*i32", "y": "*i32", "n": "i32"}
    return [
        Kernel(
            f"sums.{arch}",
            _sums,
            signature,
            {"ARCH": arch, "SLOW_ON": slow_on, "PLAIN_ON": plain_on},
            work="LDG",
            weights=1,
            architectures=(arch,),
        )
        for arch in ARCHITECTURES
    ]


@pytest.fixture(scope="module")
def recorded():
    measured, findings = measure(_kernels())
    assert not findings
    return measured


def test_the_same_kernels_pass(recorded):
    measured, findings = measure(_kernels())
    assert findings == []
    assert compare(measured, recorded) == []


@pytest.mark.parametrize("arch", [75, 86, 120])
def test_more_instructions_on_one_architecture_are_named(recorded, arch):
    found = compare(measure(_kernels(slow_on=arch))[0], recorded)
    assert {finding.architecture for finding in found} == {arch}
    each = next(finding for finding in found if finding.what == "per_weight")
    assert f"on sm_{arch}: per_weight is {each.found}, recorded {each.recorded}, +" in str(each)
    assert int(each.found) >= 1.5 * each.recorded


@pytest.mark.parametrize("arch", [75, 90])
def test_plain_loads_on_one_architecture_are_named(recorded, arch):
    found = compare(measure(_kernels(plain_on=arch))[0], recorded)
    assert {finding.architecture for finding in found} == {arch}
    lost = [finding for finding in found if "CONSTANT" in finding.what]
    assert lost
    assert all(finding.found == 0 and finding.recorded for finding in lost)


def test_a_contraction_where_bytes_are_promised_is_found():
    kernel = Kernel("fma", _contracts, {"x": "*fp32", "y": "*fp32", "z": "*fp32"}, normative=True, architectures=(86,))
    _, findings = measure([kernel])
    assert [finding.what for finding in findings] == ["forbidden where bytes are promised"]
    assert str(findings[0].found).startswith("fma.")
    assert measure([replace(kernel, normative=False)])[1] == []


def test_a_kernel_that_does_not_compile_is_a_finding():
    broken = Kernel(
        "broken", _sums, {"x": "*i32", "y": "fp32", "n": "i32"}, _kernels()[0].constants, architectures=(80,)
    )
    measured, findings = measure([broken])
    assert measured == {}
    assert [finding.what for finding in findings] == ["does not compile"]


def test_loops_and_instructions_per_weight():
    kernel = _kernels()[4]
    counts = count(build(kernel, 90), kernel)
    assert 0 < counts.loop < counts.instructions
    # Every word needs its load and its addition; the rest of a turn is shared by eight words a thread.
    assert 2000 <= counts.per_weight < 2500
    assert count(build(kernel, 90), replace(kernel, work="", weights=0)).per_weight == 0


def test_what_only_one_side_has_is_a_finding(recorded):
    first = next(iter(recorded))
    rest = {key: value for key, value in recorded.items() if key != first}
    assert [finding.what for finding in compare(rest, recorded)] == ["kernel"]
    assert compare(recorded, rest) == [Finding(first[0], first[1], "instructions", recorded[first].instructions)]


def test_forbidden_reads_instructions_and_not_comments():
    built = build(_kernels()[4], 90)
    assert forbidden(built) == []
    assert forbidden(replace(built, ptx="// fma.rn.f32\n add.f32 %f1;\n div.full.f32 %f2;")) == ["div.full.f32"]
