"""Ways of running the same tokens through our forward pass and the oracle's; each returns the largest difference.

Used by the parity tests and by `tools/parity.py`, which writes the table in docs/parity.md.
"""

import functools
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from strata.model.mtp import MtpOptions
from support import tiny
from support.mtp_oracle import mtp_oracle
from support.network import network, oracle_logits, prompt, stable_topk

LIMIT = 1e-4
"""Allowed difference of a logit. Ours lies within 2e-5 and the oracle's within 4e-5 of the same pass in float64
(docs/parity.md), so a larger difference is an error, not rounding."""

LENGTH = 150
"""Tokens of a prompt, one EOS among them. The indexer's budget is 16 (base, yarn) or 24 (other)."""

CUTS = {
    "one pass": [],
    "chunks of 1": list(range(1, LENGTH)),
    "chunks of 7": list(range(7, LENGTH, 7)),
    "chunks of 64": list(range(64, LENGTH, 64)),
    "odd cuts": [1, 3, 66, 67, 130],
    "cuts beside chunk borders": [63, 128],
}

VARIANTS = {
    "global norm, dense": MtpOptions(),
    "norm per stream, dense": MtpOptions(norm_per_stream=True),
    "global norm, sparse": MtpOptions(sparse=True),
}


def difference(ours: Tensor, expected: Tensor) -> float:
    """Largest absolute difference."""
    return float((ours - expected).abs().max())


def in_pieces(name: str, ids: list[int], cuts: list[int], positions: Tensor | None = None) -> Tensor:
    """Our logits [T, V] of a prompt read in pieces."""
    net = network(name)
    state, parts = net.new_state(), []
    for a, b in itertools.pairwise([0, *cuts, len(ids)]):
        parts.append(net.read(state, ids[a:b], None if positions is None else positions[a:b]))
    assert state.length == len(ids)
    return net.logits(torch.cat(parts))


def read(name: str, cuts: list[int], length: int = LENGTH, seed: int = 3) -> float:
    """A prompt in pieces."""
    return difference(in_pieces(name, prompt(name, length, seed), cuts), oracle_logits(name, length, seed))


def windows(name: str, rows: int) -> float:
    """A prompt, then windows of `rows` rows, each committed whole."""
    ids, net = prompt(name, LENGTH), network(name)
    state = net.new_state()
    parts = [net.logits(net.read(state, ids[:90]))]
    for first in range(90, LENGTH, rows):
        window = net.window([(state, ids[first : first + rows])])[0]
        net.commit(state, window, len(window.ids))
        parts.append(net.logits(window.residual))
    return difference(torch.cat(parts), oracle_logits(name, LENGTH))


def image_positions() -> Tensor:
    """Positions [60, 3] of two images of 3x4 and 2x2 patches between texts: tokens share positions."""
    rows, at = [], 0
    for kind, *size in (("text", 9), ("image", 3, 4), ("text", 14), ("image", 2, 2), ("text", 21)):
        if kind == "text":
            rows += [(at + i, at + i, at + i) for i in range(size[0])]
            at += size[0]
        else:
            rows += [(at, at + r, at + c) for r in range(size[0]) for c in range(size[1])]
            at += max(size)
    return torch.tensor(rows)


def images(cuts: list[int]) -> float:
    """M-RoPE positions, in pieces that cut an image."""
    ids, positions = prompt("base", 60), image_positions()
    with stable_topk():
        expected = tiny.oracle("base")(torch.tensor([ids]), position_ids=positions.T[:, None]).logits[0]
    return difference(in_pieces("base", ids, cuts, positions), expected)


def trunk_residual(name: str, ids: list[int]) -> Tensor:
    """The oracle's residual [T, S*H] before its mixer, caught by a hook."""
    model, caught = tiny.oracle(name), []
    hook = model.model.hyper_connection_mixer.register_forward_pre_hook(lambda _, args: caught.append(args[0][0]))
    try:
        with stable_topk():
            model(torch.tensor([ids]))
    finally:
        hook.remove()
    return caught[0]


def drafts(name: str, variant: str, steps: int = 3) -> list[tuple[Tensor, Tensor]]:
    """Draft chains: ours from the cached cells, the oracle's recomputed whole for every step; (ours, oracle) logits."""
    options, ids = VARIANTS[variant], prompt(name, 70)
    head = mtp_oracle(name, norm_per_stream=options.norm_per_stream, sparse=options.sparse)
    net = network(name, drafts=True, options=options)
    state = net.new_state()
    for a, b in ((0, 1), (1, 40), (40, 69)):
        net.read(state, ids[a:b])
    pairs, chain, residual = [], ids[1:], trunk_residual(name, ids[:69])
    for ours in net.draft(state, ids[69], steps):
        with stable_topk():
            expected, out = head(torch.tensor(chain), residual, torch.arange(len(chain)).expand(3, -1))
        pairs.append((ours, expected[-1]))
        chain = [*chain, int(expected[-1].argmax())]
        residual = torch.cat((residual, out[-1:]))
    return pairs


def scenarios() -> dict[str, Callable[[], float]]:
    """Every comparison of the table, by name."""
    found: dict[str, Callable[[], float]] = {}
    for name in tiny.SETTINGS:
        for cut, cuts in CUTS.items():
            found[f"{name}: {cut}"] = functools.partial(read, name, cuts)
        for rows in (1, 2, 5, 8):
            found[f"{name}: 90 tokens, then windows of {rows}"] = functools.partial(windows, name, rows)
    found["base: 600 tokens, 37 times the indexer's budget"] = functools.partial(read, "base", [512], 600, 5)
    for cuts in ([], [12], [5, 30, 31]):
        found[f"base: M-RoPE positions of two images, cut at {cuts}"] = functools.partial(images, cuts)
    return found
