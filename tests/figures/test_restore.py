"""A conversation comes back the way the server brings it back, with the token of a fresh reading."""

from types import SimpleNamespace

import pytest
import torch

import strata
from figures import restore
from figures.sizes import TINY
from strata.errors import StrataError
from strata.session.options import Options
from strata.session.scheduler import Scheduler


@pytest.fixture(scope="module")
def network():
    return strata.load(threads=1).network


def test_from_memory_and_from_files(network, tmp_path):
    kept = []
    resident = {"resident": SimpleNamespace(network=network)}
    session = SimpleNamespace(
        device=torch.device("cpu"), sizes=TINY, disk=tmp_path, arms=lambda _: resident, rounds=lambda: [-1, 0],
        model=SimpleNamespace(facts=lambda: {"layers": 1}), say=lambda _: None, keep=kept.append,
    )  # fmt: skip
    found = restore.restore(session)
    assert found["bytes"] > 0
    times = {"ram_ms", "disk_ms", "ram_q8_ms", "disk_q8_ms"}
    assert {name: len(some) for name, some in found["rounds"].items()} == dict.fromkeys(
        times | {"ram_parts_ms", "disk_parts_ms"}, 1
    )
    assert (found["keys_and_values"], found["q8"]["keys_and_values"]) == ("f32", "q8")
    for told in (found, found["q8"]):
        assert 0 < told["file_bytes"] < told["bytes"], "files are packed"
        assert told["files_gb"] == round(told["file_bytes"] / 1e9, 3)
    assert found["q8"]["bytes"] < found["bytes"]
    assert found["q8"]["file_bytes"] < found["file_bytes"]
    assert found["files"] == found["q8"]["files"] == 2
    assert all(value > 0 for value in found["rounds"]["ram_ms"] + found["rounds"]["disk_ms"])
    assert all(one["state"] > 0 and one["start"] > 0 for one in found["rounds"]["disk_parts_ms"])
    assert found["medians"].keys() == times
    assert len(kept) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_conversation_that_is_read_again_is_no_restored_one(network):
    scheduler = Scheduler(network, Options(keep=False))
    prompt = tuple(range(5, 15))
    try:
        assert restore.first(scheduler, prompt, "first", torch.device("cpu")) > 0
        with pytest.raises(StrataError, match="0 tokens of 11 were known instead of 10"):
            restore.first(scheduler, (*prompt, 3), "second", torch.device("cpu"), 10)
        with pytest.raises(StrataError, match="nothing is known"):
            restore.pieces(scheduler, network, prompt, [3], torch.device("cpu"))
    finally:
        scheduler.close()
