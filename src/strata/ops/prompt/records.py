"""Short passes over prompts that are recorded once and repeated from then on."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from strata.ops.gpu.record import Recording

Shape = tuple[int, int]
"""Rows there is room for, and blocks that are scored."""

log = logging.getLogger("strata.gpu")


class Records:
    """Of every shape one, made when it is met the second time. They share their memory, so one runs at a time.

    What the host does in between parts a record.

    Attributes:
        done: by shape, and what each leaves.
        making: the one that is being made.
    """

    def __init__(self) -> None:
        self.done: dict[Shape, tuple[Recording, Tensor]] = {}
        self.making: Recording | None = None
        self._met: set[Shape] = set()
        self._full = False  # there is no memory for further ones

    def run(self, shape: Shape, body: Callable[[], Tensor]) -> Tensor | None:
        """Run a shape's record.

        Args:
            shape: of the pass.
            body: what launches it, on memory that is every time the same.

        Returns:
            What it leaves, until another record runs; None where the pass has to be launched as ever.
        """
        if shape not in self.done and (shape not in self._met or self._full):
            self._met.add(shape)
            return None
        if shape not in self.done:
            try:
                self.done[shape] = self._made(body)
            except torch.OutOfMemoryError as error:
                self._give_up(str(error).partition("\n")[0])
                return None
        recording, x = self.done[shape]
        recording.replay()
        return x

    def between(self, action: Callable[[], None]) -> None:
        """The host does something here, in a record each time that it is run again."""
        if self.making is None:
            action()
        else:
            self.making.host(action)

    def _made(self, body: Callable[[], Tensor]) -> tuple[Recording, Tensor]:
        recording = self.making = Recording(next((one for one, _ in self.done.values()), None))
        try:
            with recording.capture():
                return recording, body()
        finally:
            self.making = None

    def _give_up(self, why: str) -> None:
        """No more of them; whoever looks for a reason finds one."""
        self._full = True
        log.warning(
            "no memory to record another kind of short prompt pass, behind %s: all others are launched one by one, "
            "which takes the host longer; a smaller --vram or --context leaves more (%s)", len(self.done), why,
        )  # fmt: skip
        torch.cuda.empty_cache()  # of what was recorded of it
