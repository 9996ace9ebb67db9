"""What words between the halves, and loads over the link, become on every architecture, from the compiler's text."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

COMPILE = r"""
import re, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from strata.ops.kernels import ARCHS
from strata.ops.kernels.tiers import tiers
for arch in ARCHS:
    for kernel in tiers(arch)[:6]:
        signature, attributes = kernel.full_signature(), kernel.attributes()
        source = ASTSource(fn=kernel.function, signature=signature, constexprs=kernel.constants, attrs=attributes)
        built = triton.compile(
            source, target=GPUTarget("cuda", arch, 32), options={"num_warps": kernel.warps, **kernel.options}
        )
        text = built.asm["ptx"]
        if kernel.name.startswith("tiers.bring"):
            layouts = built.asm["ttgir"]
            moved, each = layouts.count("convert_layout"), re.findall(r"sizePerThread = \[(\d+)\]", layouts)
            print(arch, kernel.name, built.metadata.shared, moved, text.count("ld.global.v4"), *each)
            continue
        words = re.findall(r"atom\S*|ld\S*acquire\S*|bar\.sync|ld\.volatile\S*|globaltimer", text)
        print(arch, kernel.name, *words)
"""


def test_a_wait_loads_a_message_is_released_and_whole_lines_are_asked_for(tmp_path):
    environment = os.environ | {
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = 0
    for line in done.stdout.splitlines():
        _, name, *words = line.split()
        if name == "tiers.await_host":
            # Loads alone poll the host's word: a read and a write would put an old answer over a new one.
            assert [word for word in words if word.startswith("atom")] == ["atom.global.sys.release.exch.b64"]
            assert words.count("ld.global.sys.acquire.b64") >= 2
            assert "globaltimer" in words
        elif name.startswith("tiers.publish"):
            assert [word for word in words if word.startswith("atom")] == ["atom.global.sys.release.exch.b64"]
            assert words[words.index("atom.global.sys.release.exch.b64") - 1] == "bar.sync"
        elif name.startswith("tiers.bring"):
            # Planes are formed by the threads that loaded their words: nothing passes through shared memory. And a
            # thread takes 16 bytes of RAM at once, so that a warp asks for whole lines; left to itself Triton gives it
            # up to 64, which are pieces of 16 lines an instruction.
            shared, moved, loads, *each = map(int, words)
            assert (shared, moved) == (0, 0)
            assert loads >= 7
            assert max(each) == 4
        else:
            assert any(word.startswith("ld.volatile") for word in words)
        seen += 1
    assert seen == 36
