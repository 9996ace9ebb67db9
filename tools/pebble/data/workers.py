"""Processes that make batches ahead of the GPU, in an order that does not depend on how many there are."""

import multiprocessing as mp
import queue
import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from pebble.data.mixture import Document, Mixture
from pebble.data.stock import load


def _work(folder: Path, seed: int, requests: Any, results: Any) -> None:
    mixture = Mixture(load(folder))
    while (request := requests.get()) is not None:
        results.put(mixture.batch(seed, *request))


class Feed:
    """Batches by request: ask ahead, take in the order asked.

    With ``count`` 0 batches are made in this process when taken, which is what the tests use.
    """

    def __init__(self, folder: Path, seed: int, count: int) -> None:
        self._seed, self._turn = seed, 0
        self._pending: deque[Any] = deque()
        self._local = Mixture(load(folder)) if count == 0 else None
        context = mp.get_context("spawn")
        self._lines: list[tuple[Any, Any, Any]] = []
        for _ in range(count):
            requests, results = context.Queue(), context.Queue()
            process = context.Process(target=_work, args=(folder, seed, requests, results), daemon=True)
            process.start()
            self._lines.append((process, requests, results))
        self._order: queue.Queue[Any] = queue.Queue()
        self._ready: queue.Queue[Document] = queue.Queue(maxsize=8)
        if count:
            threading.Thread(target=self._receive, daemon=True).start()

    def ask(self, index: int, rows: int, length: int, progress: float) -> None:
        """Have a batch made."""
        request = (index, rows, length, progress)
        if self._local:
            self._pending.append(request)
            return
        line = self._lines[self._turn % len(self._lines)]
        self._turn += 1
        line[1].put(request)
        self._order.put(line[2])

    def take(self) -> Document:
        """The oldest batch asked for."""
        if self._local:
            return self._local.batch(self._seed, *self._pending.popleft())
        return self._ready.get(timeout=120)

    def _receive(self) -> None:
        """Move finished batches into this process, in order.

        A pipe holds less than a batch and its writer is busy with the next one, so a batch read only when it is
        needed comes late.
        """
        while (line := self._order.get()) is not None:
            ids, weights = line.get()
            self._ready.put((np.asarray(ids), np.asarray(weights)))

    def close(self) -> None:
        """End the processes."""
        self._order.put(None)
        for process, requests, _ in self._lines:
            requests.put(None)
            process.terminate()
