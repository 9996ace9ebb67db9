"""The list of kernels to compile is complete; a few are compiled here, in a process without the interpreter."""

import os
import subprocess
import sys

from strata.lab.codegen.kernels import all_kernels
from strata.ops.gpu import layers
from strata.ops.kernels import ARCHS, KERNELS, core
from strata.ops.kernels.prompt import FIRST

COMPILE = """
import re, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from strata.ops.kernels import KERNELS
for arch, name in ((75, "matvec.Q4_K.T2.8192x2560"), (120, "quantise"), (90, "experts.combine")):
    kernel = next(kernel for kernel in KERNELS[arch] if kernel.name == name)
    signature, attributes = kernel.full_signature(), kernel.attributes()
    source = ASTSource(fn=kernel.function, signature=signature, constexprs=kernel.constants, attrs=attributes)
    options = {"num_warps": kernel.warps, **kernel.options}
    built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    found = re.findall(r"\\bfma\\.|\\.ftz|approx|div\\.full", built.asm["ptx"])
    print(name, len(built.asm["cubin"]) > 0, kernel.normative and found)
"""


def test_names_are_unique_and_arguments_known():
    for arch in ARCHS:
        names = [kernel.name for kernel in KERNELS[arch]]
        assert len(set(names)) == len(names)
        for kernel in KERNELS[arch]:
            assert set(kernel.signature) | set(kernel.constants) == set(kernel.arguments()), kernel.name
            assert set(kernel.aligned) <= set(kernel.signature), kernel.name


def test_limits_of_registers_are_those_of_launches():
    for arch in ARCHS:
        chooses = [
            kernel for kernel in all_kernels() if kernel.architectures == (arch,) and kernel.name == "qsa.choose"
        ]
        assert [kernel.warps for kernel in chooses] == [layers.CHOOSERS]
        limits = {kernel.name: kernel.registers for kernel in all_kernels() if kernel.architectures == (arch,)}
        assert limits["qsa.choose"] == layers.CHOOSING_REGISTERS
        if arch >= FIRST:
            assert (limits["prompt.gate_up.Q4_K.32"], limits["prompt.gate_up.IQ3_XXS.4096"]) == (128, 0)


def test_the_core_has_every_kind():
    for arch in ARCHS:
        names = {kernel.name for kernel in core(arch)}
        assert len(names) < len(KERNELS[arch]) / 4
        for part in (
            "matvec.IQ3_XXS.T4",
            "matvec.Q8_0.T1.2560x640",
            "gate_up",
            "down",
            "quantise",
            "plan",
            "combine",
            "floats",
        ):
            assert any(part in name for name in names), part


def test_entries_compile_without_forbidden_instructions(tmp_path):
    environment = os.environ | {
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "matvec.Q4_K.T2.8192x2560 True []",
        "quantise True []",
        "experts.combine True []",
    ]
