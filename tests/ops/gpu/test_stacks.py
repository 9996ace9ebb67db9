"""When CUDA is told to keep no stacks; tests/gpu has a card."""

import contextlib

import pytest
import torch

from strata.errors import TierError
from strata.ops.gpu import stacks
from strata.ops.gpu.stacks import STACK_SIZE, small_stacks


class Driver:
    def __init__(self, limit, status=0) -> None:
        self.limit, self.status = limit, status

    def cuCtxGetLimit(self, found, which) -> int:  # noqa: N802
        assert which == STACK_SIZE
        found._obj.value = self.limit
        return 0

    def cuCtxSetLimit(self, which, value) -> int:  # noqa: N802
        assert which == STACK_SIZE
        if not self.status:
            self.limit = value
        return self.status


@pytest.fixture
def card(monkeypatch):
    def of(driver):
        monkeypatch.setattr(stacks, "loaded", lambda calls, _: driver if calls else None)
        monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        return driver

    return of


def test_the_usual_ones_go(card):
    driver = card(Driver(1024))
    assert small_stacks(torch.device("cuda:0"))
    assert driver.limit == 0
    assert not small_stacks(torch.device("cuda:0")), "it is not the usual one any more"


@pytest.mark.parametrize("limit", [64, 512, 4096])
def test_what_somebody_has_asked_for_stays(card, limit):
    driver = card(Driver(limit))
    assert not small_stacks(torch.device("cuda:0"))
    assert driver.limit == limit


def test_a_driver_that_refuses_or_is_not_there(card, monkeypatch):
    assert not small_stacks(torch.device("cpu"))
    assert not small_stacks_of(card, Driver(1024, status=1))

    def none(*_):
        raise TierError("no driver")

    monkeypatch.setattr(stacks, "loaded", none)
    assert not small_stacks(torch.device("cuda:0"))


def small_stacks_of(card, driver) -> bool:
    card(driver)
    return small_stacks(torch.device("cuda:0"))
