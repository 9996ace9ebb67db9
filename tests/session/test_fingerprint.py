"""Another model, setting or order of operations has another fingerprint; the same has the same (case K17)."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from strata.errors import StrataError
from strata.model.mtp import MtpOptions
from strata.ops.cpu import CpuOps
from strata.session import fingerprint as module
from strata.session.fingerprint import fingerprint
from support.network import network


@pytest.fixture
def net():
    return network("other", drafts=True)


def test_the_same_model_has_the_same(net) -> None:
    assert fingerprint(net) == fingerprint(replace(net))
    assert len(fingerprint(net)) == 32


def test_what_changes_a_state_changes_it(net, monkeypatch) -> None:
    c = net.config
    others = [
        replace(net, drafts=False),
        replace(net, mtp=MtpOptions(sparse=True)),
        replace(net, config=replace(c, rope=replace(c.rope, scale=2.0))),
        replace(net, config=replace(c, rope=replace(c.rope, theta=1e6))),
        replace(net, config=replace(c, qsa=replace(c.qsa, budget=64))),
    ]
    found = {fingerprint(net), fingerprint(net, "another file"), *map(fingerprint, others)}
    assert len(found) == 2 + len(others)
    monkeypatch.setattr(module, "STATES", 2)
    assert fingerprint(net) not in found


def test_another_device_is_another(net) -> None:
    class Other(CpuOps):
        form = "another"

    assert fingerprint(replace(net, ops=Other(net.config))) != fingerprint(net)


def test_how_much_a_conversation_may_hold_does_not(net) -> None:
    assert fingerprint(replace(net, config=replace(net.config, context=77))) == fingerprint(net)


@pytest.mark.parametrize("most", [0, 1 << 40], ids=["sampled", "whole"])
def test_other_weights_of_the_same_shape_change_it(net, monkeypatch, most) -> None:
    monkeypatch.setattr(module, "WHOLE", most)
    weights = net.weights
    other = replace(net, weights=replace(weights, head=weights.head + 1e-3))
    assert fingerprint(other) != fingerprint(net)
    table = Table(torch.arange(12.0).reshape(6, 2))
    one = replace(net, weights=replace(weights, embed=table))
    two = replace(net, weights=replace(weights, embed=Table(table.values * 2)))
    assert len({fingerprint(net), fingerprint(one), fingerprint(two)}) == 3


@dataclass
class Table:
    values: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def rows(self, ids):
        return self.values[list(ids)]


def test_of_large_tables_rows_from_end_to_end_are_taken(net, monkeypatch) -> None:
    monkeypatch.setattr(module, "ROWS", 4)
    values = torch.zeros(100, 2)
    first = fingerprint(replace(net, weights=replace(net.weights, embed=Table(values))))
    for row, seen in ((0, True), (33, True), (66, True), (99, True), (50, False)):
        changed = values.clone()
        changed[row] = 1.0
        same = fingerprint(replace(net, weights=replace(net.weights, embed=Table(changed)))) == first
        assert same != seen


def test_bfloat16_and_arrays_are_taken_too(net) -> None:
    found = {fingerprint(net)}
    for head in (net.weights.head.bfloat16(), net.weights.head.numpy(), np.asarray(net.weights.head) * 2):
        found.add(fingerprint(replace(net, weights=replace(net.weights, head=head))))
    assert len(found) == 3, "an array is the same weights as a tensor"


def test_what_it_cannot_see_into_is_refused(net) -> None:
    with pytest.raises(StrataError, match="contain a object"):
        fingerprint(replace(net, weights=replace(net.weights, head=object())))
