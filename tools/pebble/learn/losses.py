"""All losses of one step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pebble.net.basics import matmul
from pebble.net.fused import fused
from pebble.net.indexer import Attended, coverage, distillation
from pebble.net.trunk import Pebble

BALANCE, DRAFT, INDEXER = 0.01, 0.2, 0.5
_QUERIES = 128  # per row, for distillation


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch on the device: inputs, labels and label weights, all [rows, T]."""

    inputs: Tensor
    labels: Tensor
    weights: Tensor


@fused
def token_losses(hidden: Tensor, head: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Negative log likelihood [N] of labels [N], and whether each is the argmax; hidden [N, H], head [V, H]."""
    logits = matmul(hidden, head).float()
    own = logits.gather(1, labels[:, None])[:, 0]
    return torch.logsumexp(logits, 1) - own, (own >= logits.amax(1)).float().detach()


def _weighted(loss: Tensor, weights: Tensor) -> Tensor:
    return (loss * weights).sum() / weights.sum().clamp_min(1.0)


def _draft_losses(
    model: Pebble, residual: Tensor, batch: Batch, dtype: torch.dtype
) -> tuple[Tensor, Attended, Tensor, list[Tensor]]:
    rows, length = batch.inputs.shape
    position = torch.arange(length, device=residual.device).repeat(rows)
    embedded = model.embed(batch.inputs.flatten(), dtype)
    drafts, record = model.mtp.chain(residual, embedded, rows, model.shape.depth)
    total = residual.new_zeros((), dtype=torch.float32)
    balance = torch.stack([d.balance for d in drafts]).mean()
    right: list[Tensor] = []
    for step, draft in enumerate(drafts, 1):
        there = (position < length - step).float()
        weights = batch.weights.flatten().roll(-step) * there
        loss, hit = token_losses(draft.hidden, model.lm_head.weight, batch.labels.flatten().roll(-step))
        total = total + _weighted(loss, weights)
        right.append(_weighted(hit, (weights >= 1).float()))
    return total, record, balance, right


def _indexer_losses(
    attended: list[Attended], weights: Tensor, ratio: int, blocks: int, seed: int
) -> tuple[Tensor, list[Tensor]]:
    """Distillation on queries drawn with probability 0.15 + weight, so that answers are over-represented."""
    generator = torch.Generator(weights.device).manual_seed(seed)
    count = min(_QUERIES, weights.shape[1])
    # Weighted draw without replacement: the smallest of exponential times over weights. torch.multinomial would
    # check its input on the host and stall the queue of kernels.
    uniform = torch.rand(weights.shape, generator=generator, device=weights.device).clamp_min(1e-20)
    queries = (uniform.log() / (0.15 + weights)).topk(count, 1).indices
    total = weights.new_zeros(())
    held: list[Tensor] = []
    for seen in attended:
        kl, p, s = distillation(seen, queries, ratio)
        total = total + kl.mean()
        held.append(coverage(p, s, blocks).mean())
    return total, held


def losses(
    model: Pebble, batch: Batch, *, choose: str, draft: bool, dtype: torch.dtype, seed: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """The step's loss, and its parts for the log (device tensors, not yet read)."""
    reading = model(batch.inputs, choose=choose, dtype=dtype)
    loss, hit = token_losses(reading.hidden, model.lm_head.weight, batch.labels.flatten())
    weights = batch.weights.flatten()
    main = _weighted(loss, weights)
    answers = (weights >= 1).float()
    parts = {"main": main, "balance": reading.balance}
    parts["answer"], parts["answer_right"] = _weighted(loss.detach(), answers), _weighted(hit, answers)
    parts["prose_right"] = _weighted(hit, ((weights > 0.3) & (weights < 1)).float())
    attended, total = reading.attended, main + BALANCE * reading.balance
    if draft:
        drafted, record, balance, right = _draft_losses(model, reading.residual, batch, dtype)
        attended = [*attended, record]
        total = total + DRAFT * drafted + BALANCE * balance
        parts["draft_loss"] = drafted
        parts |= {f"draft_right_{i}": r for i, r in enumerate(right, 1)}
    kl, held = _indexer_losses(attended, batch.weights, model.shape.ratio, model.shape.blocks, seed)
    parts["indexer"] = kl / len(attended)
    parts |= {f"covered_{i}": c for i, c in enumerate(held)}
    return total + INDEXER * kl, {name: part.detach() for name, part in parts.items()}
