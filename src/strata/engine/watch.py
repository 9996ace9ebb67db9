"""Whether a card has the memory it says it has, as windows tell: experts are found there, and it is slow even so."""

import logging
from typing import TYPE_CHECKING

from strata.memory.budget.overcommit import Detector, Overcommit

if TYPE_CHECKING:
    from strata.engine.trace import WindowRecord

log = logging.getLogger("strata.engine")


class Watch:
    """Looks at every window whose experts may lie in several places; it costs about a microsecond.

    Windows of different numbers of rows take different times, so each number is watched for itself.

    Attributes:
        warnings: how often something was found; it is said the first time.
    """

    def __init__(self) -> None:
        self._detectors: dict[int, Detector] = {}
        self._wrong: dict[int, Overcommit] = {}
        self.warnings = 0

    @property
    def wrong(self) -> str:
        """What is wrong now, in a sentence; empty while nothing is."""
        return str(next(iter(self._wrong.values()))) if self._wrong else ""

    def reset(self) -> None:
        """Begin anew: the card's memory is shared out differently from now on."""
        self._detectors.clear()
        self._wrong.clear()

    def seen(self, record: "WindowRecord") -> None:
        """Note a window."""
        visits = sum(record.hits.values())
        if not visits or not record.run_us or record.read_us:
            return
        rows = record.rows
        detector = self._detectors.get(rows)
        if detector is None:
            detector = self._detectors[rows] = Detector()
        found = detector.seen(record.hits.get("vram", 0) / visits, 1e6 / record.run_us)
        if found is None:
            self._wrong.pop(rows, None)
            return
        if not self._wrong:
            self.warnings += 1
            if self.warnings == 1:
                log.warning("%s", found)
        self._wrong[rows] = found
