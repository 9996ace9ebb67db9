"""What the device counted, as sums."""

import numpy as np
from numpy.typing import NDArray

from strata.model.tally import Tally
from strata.ops.tiers import kernels as k


def tallied(sums: NDArray[np.int64], unit: float) -> Tally:
    """From the device's sums, ``int64 [layers, SUMS]``.

    Args:
        sums: see `kernels`.
        unit: microseconds of what waits are counted in.
    """
    total = sums.sum(axis=0).tolist()
    resident, link, host = total[k.RESIDENT.value], total[k.BY_LINK.value], total[k.BY_HOST.value]
    return Tally(
        total[k.TIMES.value], resident + link + host, resident, link, host, total[k.WHOLE.value], total[k.WAITS.value],
        total[k.WAITED.value] * unit,
    )  # fmt: skip
