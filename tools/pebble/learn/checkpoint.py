"""Saving and restoring a run: weights, both optimisers, progress. Batches are a function of the step alone."""

from dataclasses import dataclass
from pathlib import Path

import torch

from pebble.learn.optimisers import Optimisers
from pebble.net.trunk import Pebble


@dataclass(slots=True)
class Progress:
    """Where a run stands."""

    step: int = 0
    elapsed: float = 0.0  # seconds of the budget used
    tokens: int = 0


def save(path: Path, model: Pebble, optimisers: Optimisers, progress: Progress) -> None:
    """Write a checkpoint, replacing the old one only when complete."""
    state = {
        "model": model.state_dict(),
        "optimisers": optimisers.state_dict(),
        "progress": [progress.step, progress.elapsed, progress.tokens],
    }
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def restore(path: Path, model: Pebble, optimisers: Optimisers) -> Progress:
    """Load a checkpoint into a model and its optimisers."""
    state = torch.load(path, map_location=next(model.parameters()).device, weights_only=True)
    model.load_state_dict(state["model"])
    optimisers.load_state_dict(state["optimisers"])
    return Progress(*state["progress"])
