"""When torch is told to take memory in segments that grow; tests/gpu has a card."""

import warnings

import pytest
import torch

from strata.errors import TierError
from strata.ops.gpu import segments
from strata.ops.gpu.segments import growing


class Card:
    """What is asked of one, and told to torch."""

    def __init__(self, monkeypatch, *, able=True):
        self.did: list[str] = []
        for name in segments.SETTINGS:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(segments.platform, "release", lambda: "6.8.0-generic")
        monkeypatch.setattr(segments, "CudaChunks", self._chunks)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: self.did.append("empty"))
        monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", self.did.append)
        self.able = able

    def _chunks(self, device):
        if not self.able:
            raise TierError(f"no virtual memory on {device}")


def test_a_card(monkeypatch):
    card = Card(monkeypatch)
    assert growing(torch.device("cuda:0"))
    assert card.did == ["empty", "expandable_segments:True"]


def test_torch_has_the_call_and_it_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert callable(torch._C._accelerator_setAllocatorSettings)


@pytest.mark.parametrize("why", ["cpu", "wsl", "driver", *segments.SETTINGS])
def test_where_it_is_left_as_it_is(monkeypatch, why):
    card = Card(monkeypatch, able=why != "driver")
    if why == "wsl":
        monkeypatch.setattr(segments.platform, "release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    if why in segments.SETTINGS:
        monkeypatch.setenv(why, "max_split_size_mb:512")
    assert not growing(torch.device("cpu" if why == "cpu" else "cuda:0"))
    assert card.did == []
