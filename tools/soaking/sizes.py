"""Gives memory of the GPU back and takes it again while the load is on."""

import http.client
import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence

from soaking.watch import Repeat

PAUSE = 5.0
"""Seconds between two sizes."""


class Sizes(Repeat):
    """Asks for one size after the other, again and again.

    Args:
        port: of the server.
        sizes: as `POST /v1/strata/vram` takes them, such as 12GB; none asks for nothing.
        pause: seconds.

    Attributes:
        taken: how often the server did it.
        seconds: that it took, each time.
        refused: how often it did not, by what it said.
    """

    def __init__(self, port: int, sizes: Sequence[str], pause: float = PAUSE) -> None:
        super().__init__(pause)
        self._port, self._next = port, itertools.cycle(sizes)
        self.taken = 0
        self.seconds: list[float] = []
        self.refused: Counter[str] = Counter()

    def once(self) -> None:
        """The next size."""
        size = next(self._next, None)
        if size is None:
            return
        began = time.perf_counter()
        link = http.client.HTTPConnection("127.0.0.1", self._port, timeout=180)
        try:
            link.request("POST", "/v1/strata/vram", json.dumps({"vram": size}))
            answer = link.getresponse()
            told = json.loads(answer.read())
            if answer.status == 200:
                self.taken += 1
                self.seconds.append(time.perf_counter() - began)
            else:
                self.refused[f"{answer.status}: {told['error']['message']}"] += 1
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.refused[type(error).__name__] += 1
        finally:
            link.close()
