"""Who computes how many of a layer's missing experts: the host where they lie, or the GPU over the link.

Both work at the same time, so a layer waits for whoever takes longer. With a fixed cost and one for each expert on
either side, every number of misses has a best split; it is worked out ahead, once for each set of costs, and the device
looks it up. Nothing of it can be seen in the rows: an expert has the same bytes from both sides.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strata.experts.errors import KernelError


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds, as measured.

    Attributes:
        host: of the host for each expert.
        link: of the link for each expert: its bytes across, and made ready.
        host_first: of the host before its first one: the message, waking, the rows back.
        link_first: of the link before its first one.
    """

    host: float
    link: float
    host_first: float = 0.0
    link_first: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no cost."""
        each, first = (self.host, self.link), (self.host_first, self.link_first)
        if not all(np.isfinite(x) for x in (*each, *first)) or min(each) <= 0 or min(first) < 0:
            raise KernelError(f"costs are positive microseconds for each expert, and none below 0 before, not {self}")

    @property
    def each(self) -> float:
        """Microseconds that one miss more adds where there are many, shared out as it is best."""
        return 1.0 / (1.0 / self.host + 1.0 / self.link)

    def waits(self, missing: int, link: int) -> float:
        """Microseconds until the last of so many experts is there, if the link takes so many of them."""
        host = missing - link
        by_host = self.host_first + host * self.host if host else 0.0
        by_link = self.link_first + link * self.link if link else 0.0
        return max(by_host, by_link)


def shares(costs: Costs, most: int, room: int) -> NDArray[np.int32]:
    """For every number of missing experts, how many of them go over the link: ``int32 [most + 1]``.

    Of equally good splits the one with the least work for the link. One expert more never takes one from either side:
    the best split of one more is among these two, because both sides' times are straight lines.

    Args:
        costs: measured.
        most: missing experts there can be.
        room: experts the link's side has room for; 0 where it takes none.
    """
    table = np.zeros(most + 1, np.int32)
    for missing in range(1, most + 1):
        fewer = int(table[missing - 1])
        waits = [costs.waits(missing, link) for link in (fewer, fewer + 1)]
        table[missing] = fewer + (fewer < room and waits[1] < waits[0])
    return table
