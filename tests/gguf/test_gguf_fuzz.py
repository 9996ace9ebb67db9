"""Damaged files at random: nothing but StrataError comes out, soon, and without more memory than the file justifies.

`tools/fuzz_gguf.py` runs the same on as many files as wanted.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.ggufs import MEMORY_CONSTANT, MEMORY_FACTOR, SECONDS, edited, sample, tiny_model, warm_up, watched

NUMBERS = [0, 1, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
PAYLOADS = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from([value.to_bytes(8, "little") for value in NUMBERS]),
    st.sampled_from([value.to_bytes(8, "little")[:4] for value in NUMBERS]),
)
KINDS = st.sampled_from(["set"] * 5 + ["insert", "delete", "cut"])
EDITS = st.lists(st.tuples(KINDS, st.integers(0, 2**32 - 1), PAYLOADS), min_size=1, max_size=4)


Check = Callable[[Path, int], None]


@pytest.fixture(scope="module")
def check(tmp_path_factory) -> Iterator[Check]:
    """Reads everything in one file of some size, and watches: in a process whose only thread does nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as reader:
        reader.submit(warm_up, tmp_path_factory.mktemp("warm")).result()

        def check(path: Path, size: int) -> None:
            seconds, peak = reader.submit(watched, path).result()
            assert seconds < SECONDS
            assert peak < MEMORY_FACTOR * size + MEMORY_CONSTANT

        yield check


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The bytes of a sound set of two files."""
    folder = tmp_path_factory.mktemp("shards")
    names = ["token_embd.weight", "blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight", "output_norm.weight"]
    return {path.name: path.read_bytes() for path in tiny_model(folder / "m.gguf", shards=[names[:1], names[1:]])}


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(edits=EDITS)
@example(edits=[("cut", 0, b"")])
def test_a_damaged_file(tmp_path_factory, check, edits):
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    data = edited(sample().data, edits)
    path.write_bytes(data)
    check(path, len(data))


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(edits=EDITS, damaged=st.integers(0, 1), given_part=st.integers(0, 1))
def test_a_set_with_a_damaged_shard(tmp_path_factory, shards, check, edits, damaged, given_part):
    folder = tmp_path_factory.mktemp("fuzz")
    for index, (name, data) in enumerate(shards.items()):
        (folder / name).write_bytes(edited(data, edits) if index == damaged else data)
    check(folder / list(shards)[given_part], sum(path.stat().st_size for path in folder.iterdir()))


@settings(deadline=None, max_examples=100)
@given(data=st.binary(max_size=200))
def test_bytes_that_only_start_like_a_header(tmp_path_factory, check, data):
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + data)
    check(path, len(data) + 8)
