"""The same questions put to a file, through Strata's own forward pass on the CPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pebble.exam.teacher import Sheet
from strata.gguf import open_model
from strata.model import Network, load_config, load_weights
from strata.model.ops import QsaInputs
from strata.ops.cpu import CpuOps
from strata.text import ChatTemplate, Tokenizer


class BlindOps(CpuOps):
    """As many blocks as the indexer would choose, chosen at random: the control that must fail."""

    def attend(self, x: QsaInputs, k: Tensor, v: Tensor, block_keys: Tensor, *, sparse: bool) -> Tensor:
        """See ``CpuOps``; indexer queries and block keys are replaced by noise."""
        generator = torch.Generator().manual_seed(k.shape[0])
        noise = torch.randn(x.iq.shape, generator=generator)
        keys = torch.randn(block_keys.shape, generator=generator)
        return super().attend(x._replace(iq=noise), k, v, keys, sparse=sparse)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A loaded file."""

    network: Network
    blind: Network
    tokenizer: Tokenizer
    template: ChatTemplate

    @classmethod
    def load(cls, path: Path, *, exact: bool = False) -> "Candidate":
        """Open a GGUF file; weights are shared by the network and its blind twin. `exact`: as float32."""
        directory = open_model(path)
        config = load_config(directory.metadata)
        weights = load_weights(directory, config, exact=exact)
        return cls(
            Network(config, weights, CpuOps(config), drafts=True),
            Network(config, weights, BlindOps(config)),
            Tokenizer.from_metadata(directory.metadata),
            ChatTemplate.from_metadata(directory.metadata),
        )


@torch.no_grad()
def mark(candidate: Candidate, sheet: Sheet) -> dict[str, Any]:
    """Exact documents and right tokens: every answer position's argmax must be the answer's own token."""
    network = candidate.blind if sheet.ability.choose == "random" else candidate.network
    network = Network(network.config, network.weights, network.ops)  # without the draft head: it plays no part here
    exact = right = total = 0
    for ids, answer in zip(sheet.ids, sheet.answer, strict=True):
        end = int(np.nonzero(answer)[0][-1])
        residual = network.read(network.new_state(), ids[:end].tolist())
        wanted = answer[1 : end + 1]
        best = network.logits(residual[torch.from_numpy(wanted)]).argmax(1).numpy()
        hits = best == ids[1 : end + 1][wanted]
        exact += int(hits.all())
        right, total = right + int(hits.sum()), total + len(hits)
    return {"exact": exact, "documents": len(sheet.ids), "tokens": right / total}


@dataclass(frozen=True, slots=True)
class Written:
    """A greedy continuation, stop token last if one was reached, and what the draft head proposed at each place."""

    ids: list[int]
    drafts: list[list[int]]


@torch.no_grad()
def write(candidate: Candidate, prompt: list[int], most: int, depth: int = 0) -> Written:
    """Greedy, one token at a time; with ``depth``, that many draft steps are computed beside each."""
    network = candidate.network
    state = network.new_state()
    logits = network.logits(network.read(state, prompt)[-1:])
    ids: list[int] = []
    drafts: list[list[int]] = []
    while len(ids) < most:
        token = int(logits[0].argmax())
        ids.append(token)
        if depth:
            drafts.append([int(step.argmax()) for step in network.draft(state, token, depth)])
        if token in candidate.tokenizer.eos_ids:
            break
        done = network.window([(state, [token])])[0]
        network.commit(state, done, 1)
        logits = network.logits(done.residual)
    return Written(ids, drafts)


def accepted(written: list[Written], depth: int) -> list[tuple[int, int]]:
    """(taken, offered) of each draft step, over all places where the steps before it were taken."""
    counts = [(0, 0)] * depth
    for one in written:
        for at, drafts in enumerate(one.drafts):
            for step, token in enumerate(drafts):
                if at + 1 + step >= len(one.ids):
                    break
                hit = token == one.ids[at + 1 + step]
                taken, offered = counts[step]
                counts[step] = taken + hit, offered + 1
                if not hit:
                    break
    return counts
