"""Exact greedy evaluation by one pass: an answer is right if every position's argmax is the answer's own token.

For tasks with one right answer this equals greedy generation, at a fraction of the cost; it uses the training model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pebble.data.mixture import Mixture
from pebble.data.stock import Stock
from pebble.data.vocabulary import ENDOFTEXT
from pebble.exam.questions import Ability, abilities, questions
from pebble.net.trunk import Pebble

_ROWS_TOGETHER = 65536  # tokens per pass: the training batch's, so that compiled functions are reused


@dataclass(frozen=True, slots=True)
class Sheet:
    """Encoded questions of one ability."""

    ability: Ability
    ids: np.ndarray  # int64 [count, length + 1], <|endoftext|> after the document
    answer: np.ndarray  # bool [count, length + 1]: what the assistant writes, stop included


def sheets(stock: Stock, count: int, seed: int) -> list[Sheet]:
    """All abilities' questions; long ones are half as many."""
    mixture = Mixture(stock)
    made = []
    for ability in abilities(stock):
        number = count // 2 if ability.length > 1024 else count
        ids = np.full((number, ability.length + 1), ENDOFTEXT, np.int64)
        answer = np.zeros(ids.shape, bool)
        for row, talk in enumerate(questions(ability, number, seed)):
            document, weights = mixture.encode(talk)
            ids[row, : len(document)] = document
            answer[row, : len(document)] = weights >= 1
        made.append(Sheet(ability, ids, answer))
    return made


def _passes(sheet: Sheet, tokens: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rows = max(1, tokens // sheet.ability.length)
    for at in range(0, len(sheet.ids), rows):
        ids, answer = sheet.ids[at : at + rows], sheet.answer[at : at + rows]
        missing = rows - len(ids)
        if missing and tokens >= _ROWS_TOGETHER:  # compiled functions want the one size
            ids = np.concatenate([ids, np.full((missing, ids.shape[1]), ENDOFTEXT)])
            answer = np.concatenate([answer, np.zeros((missing, ids.shape[1]), bool)])
        yield ids, answer


def _hits(model: Pebble, ids: Tensor, answer: Tensor, choose: str, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """Whether each label is the trunk's argmax [rows, T], and the same for each draft step (True outside answers)."""
    rows, length = ids.shape[0], ids.shape[1] - 1
    reading = model(ids[:, :-1], choose=choose, dtype=dtype)
    labels, wanted = ids[:, 1:].flatten(), answer[:, 1:].flatten()

    def right(hidden: Tensor, targets: Tensor, where: Tensor) -> Tensor:
        result = torch.ones_like(where)
        head = model.lm_head.weight.to(dtype)
        result[where] = (hidden[where] @ head.t()).argmax(1) == targets[where]
        return result.view(rows, length)

    drafts, _ = model.mtp.chain(reading.residual, model.embed(ids[:, :-1].flatten(), dtype), rows, model.shape.depth)
    steps = [
        right(
            d.hidden,
            labels.roll(-j),
            wanted.roll(-j) & (torch.arange(len(labels), device=ids.device) < len(labels) - j),
        )
        for j, d in enumerate(drafts, 1)
    ]
    return right(reading.hidden, labels, wanted), steps


def mark(model: Pebble, sheet: Sheet, dtype: torch.dtype, tokens: int = _ROWS_TOGETHER) -> dict[str, Any]:
    """Exact documents and right tokens of one ability, and conditional acceptance of each draft step."""
    exact = right = total = documents = 0
    given, taken = [0] * model.shape.depth, [0] * model.shape.depth
    device = next(model.parameters()).device
    for ids_part, answer_part in _passes(sheet, tokens):
        ids, answer = torch.from_numpy(ids_part).to(device), torch.from_numpy(answer_part).to(device)
        hits, steps = _hits(model, ids, answer, sheet.ability.choose, dtype)
        hits, steps = hits.detach(), [s.detach() for s in steps]
        wanted = answer[:, 1:]
        used = wanted.any(1)
        exact += int((hits.all(1) & used).sum())
        documents += int(used.sum())
        right, total = right + int((hits & wanted).sum()), total + int(wanted.sum())
        alive = wanted.clone()
        for j, step in enumerate(steps, 1):
            alive = alive & wanted.roll(-j, 1)
            alive[:, -j:] = False
            given[j - 1] += int(alive.sum())
            alive = alive & step
            taken[j - 1] += int(alive.sum())
    return {
        "exact": exact / documents,
        "tokens": right / total,
        "documents": documents,
        "drafts": [t / max(g, 1) for t, g in zip(taken, given, strict=True)],
    }


class Examiner:
    """The ability table, on the same questions every time it is asked."""

    def __init__(self, stock: Stock, count: int, seed: int = 0, tokens: int = _ROWS_TOGETHER) -> None:
        self._sheets, self._tokens = sheets(stock, count, seed), tokens

    def __call__(self, model: Pebble, dtype: torch.dtype) -> dict[str, Any]:
        """Marks by ability. Gradients stay on so that training's compiled functions serve."""
        return {"abilities": {s.ability.name: mark(model, s, dtype, self._tokens) for s in self._sheets}}
