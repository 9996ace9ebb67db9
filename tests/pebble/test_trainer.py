"""The trainer: a few steps, an interruption, and the pieces it learns with."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pebble.learn.loop import Settings, Trainer, train
from pebble.learn.muon import orthogonalised
from pebble.learn.rehearsal import iq3_s, iq4_nl, straight_through
from pebble.learn.schedule import length_of, plan
from pebble.shape import TINY
from strata.formats import by_name, dequantise, quantise
from strata.formats.codebooks.grids import grid
from support.pebble_stock import small_stock

STEPS = 6


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainer")
    stock = small_stock(folder / "stock")
    return Settings(stock, folder / "whole", 0.0, steps=STEPS, batch=2048, workers=0, shape=TINY)


def _run(settings):
    trainer = Trainer(settings, torch.from_numpy(grid("IQ3_S").copy()))
    train(trainer)
    return trainer


def test_an_interrupted_run_continues_as_if_nothing_had_happened(settings):
    whole = _run(settings)
    parted = replace(settings, out=settings.out.parent / "parted")
    first = _run(replace(parted, stop_after=3))
    assert first.at.step == 3
    second = _run(parted)
    assert second.at.step == STEPS == whole.at.step
    for (name, a), b in zip(whole.model.named_parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert any(not torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))


def test_the_log_has_every_loss_and_the_norm_before_clipping(settings):
    out = settings.out.parent / "logged"
    _run(replace(settings, out=out, stop_after=4))
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert {"main", "balance", "indexer", "norm", "rate", "speed"} <= set(line)
        assert 0 < line["norm"] < 1e3
        assert ("draft_loss" in line) == line["draft"]
    # ln 2560 = 7.85: untrained logits are nearly even
    assert 7.5 < lines[0]["main"] < 8.2


def test_the_schedule_ends_sparse_and_rehearsing():
    assert length_of(1, 0.01) == 1024
    assert (length_of(1, 0.2), length_of(2, 0.2)) == (2048, 1024)
    assert plan(500, 0.2, 1024).rate == 1.0
    assert plan(501, 0.95, 2048).choose == "indexer"
    assert plan(500, 0.95, 1024).choose == "dense"
    assert [plan(s, 0.95, 1024).rehearse for s in range(4)] == [True, True, True, False]
    assert plan(5000, 1.0, 1024).rate == pytest.approx(0.02)


@pytest.mark.parametrize(("kind", "width"), [("IQ3_S", 256), ("IQ4_NL", 64)])
def test_rehearsed_values_are_nearly_as_good_as_the_files(kind, width):
    x = np.random.default_rng(0).standard_normal((64, width)).astype(np.float32)
    t = torch.from_numpy(x)
    ours = iq3_s(t, torch.from_numpy(grid("IQ3_S").copy())) if kind == "IQ3_S" else iq4_nl(t)
    theirs = dequantise(by_name(kind), quantise(by_name(kind), x))

    def error(y):
        return float(np.sqrt(np.square(y - x).mean()))

    # One fixed place for the largest magnitude instead of a search over scales costs less than a tenth.
    assert error(theirs) <= error(ours.numpy()) * 1.001 <= error(theirs) * 1.1


def test_straight_through_shows_stored_values_and_passes_the_gradient():
    w = torch.randn(4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = straight_through(w, w.detach().round())
    torch.testing.assert_close(y, w.detach().round())
    assert torch.equal(torch.autograd.grad(y.sum(), w)[0], torch.ones(4))


@pytest.mark.parametrize("shape", [(3, 16, 48), (2, 48, 16), (1, 32, 32)])
def test_muon_updates_are_nearly_orthogonal(shape):
    g = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    singular = torch.linalg.svdvals(orthogonalised(g))
    # The quintic's fixed band; square Gaussians have singular values near zero that five steps cannot lift.
    assert singular.max() < 1.3
    assert singular.median() > 0.6
