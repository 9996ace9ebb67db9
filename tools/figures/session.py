"""What the parts of one process share: the model, its networks, time, and a place for what they find."""

import gc
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from figures.arms import Arm, build
from figures.model import Model
from figures.sizes import Sizes
from strata.errors import StrataError

SHARE = 0.75
"""Of a part's time that its rounds may take."""

Keep = Callable[[dict[str, Any]], None]


@dataclass
class Session:
    """One process that measures.

    Attributes:
        device: where.
        sizes: how much.
        model_path: the large file.
        small_path: one of a few layers, for what is compared byte by byte.
        disk: a folder on a disk.
        began: of the part that runs, on the monotonic clock.
        seconds: that it may take.
        keep: where it leaves what it has found so far.
    """

    device: torch.device
    sizes: Sizes
    model_path: Path
    small_path: Path
    disk: Path
    began: float = 0.0
    seconds: float = 600.0
    keep: Keep = lambda _: None  # replaced by whoever runs a part
    _model: Model | None = None
    _arms: dict[str, Arm] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The large file."""
        if self._model is None:
            self._model = Model(self.model_path, self.device, self.sizes.context)
        return self._model

    def arms(self, *names: str) -> dict[str, Arm]:
        """Networks by name; those that are not there yet are built.

        Raises:
            RequestError: a cap is too small for what is not experts.
        """
        for name in names:
            if name not in self._arms:
                began = time.monotonic()
                self._arms[name] = build(name, self.model)
                synchronise(self.device)
                self.say(f"{name}: built in {time.monotonic() - began:.1f} s; {self._arms[name].placed}")
        return {name: self._arms[name] for name in names}

    def only(self, names: Collection[str]) -> None:
        """Give up the memory of networks that no further part needs."""
        for name in [name for name in self._arms if name not in names]:
            try:
                self._arms.pop(name).close()
            except StrataError as error:  # its threads do not end; what it had is given up all the same
                self.say(f"{name}: {error}")
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def rounds(self, times: int = 1) -> Iterator[int]:
        """Numbers of rounds from -1, which warms up; no further one if another like the longest would take too long.

        Args:
            times: as many as usual, for what is short and differs much.
        """
        count, longest, first = times * self.sizes.rounds, 0.0, -1 if self.sizes.warm else 0
        for turn in range(first, count):
            began = time.monotonic()
            if turn > 0 and began + longest > self.began + SHARE * self.seconds:
                self.say(f"no time for round {turn + 1} of {count}")
                return
            gc.collect()
            yield turn
            longest = max(longest, time.monotonic() - began)

    def say(self, text: str) -> None:
        """A line, with the seconds since the part began."""
        print(f"  {time.monotonic() - self.began:6.1f} s  {text}", flush=True)


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()
