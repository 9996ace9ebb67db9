"""Whether experts that a prompt pass lacks come unasked, and how many rows a pass has: arithmetic on measured costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured times, in microseconds.

    Attributes:
        link: an expert from RAM to the device, in a stream of many.
        begin: of the first copy of a layer, before anything arrives.
        ask: to bring a layer's choices to the host.
        row: computing one token on the device, all layers together.
        layer: least time of a layer's kernels, launched one by one.
    """

    link: float
    begin: float = 20.0
    ask: float = 30.0
    row: float = 70.0
    layer: float = 650.0


BESIDE = 0.56
"""Part of the computing that is not routed experts': 4,096 rows of the released model on an H200."""

STEP = 64
"""Passes end at multiples of it."""

USUAL = 2048
"""Rows of a pass where nothing has to be moved."""


def _link(experts: int, costs: Costs) -> float:
    return costs.begin + costs.link * experts if experts else 0.0


def all_at_once(rows: int, share: float, missing: Sequence[int], costs: Costs) -> bool:
    """Whether to stream all missing experts of every layer without asking which are visited.

    Then copies run under the layers before, where otherwise each layer's wait for its own choices.

    Args:
        rows: of the pass.
        share: of the missing experts that they will visit (`strata.ops.prompt.stream.share`).
        missing: experts each layer lacks.
        costs: measured.
    """
    compute = max(costs.row * rows, costs.layer * len(missing))
    together = max(costs.link * sum(missing) + costs.begin, compute)
    asked = sum(costs.ask + _link(round(share * count), costs) for count in missing) + compute
    return together <= asked


def pass_rows(most: int, costs: Costs, missing: int) -> int:
    """Rows of a prompt's longest passes.

    Every pass moves all missing experts, so few, long passes are fast as long as the link takes longer than
    computing; beyond that length nothing is gained, and others would wait longer.

    Args:
        most: for which there is memory.
        costs: measured.
        missing: experts of all layers that have to be moved.

    Returns:
        A multiple of `STEP` if `most` is one.
    """
    hidden = math.ceil(2 * costs.link * missing / costs.row / STEP) * STEP  # twice as long as the link takes
    return min(most, max(USUAL, hidden))


def ring_buffers(rows: int, layers: int, most: int, landing: int, costs: Costs) -> int:
    """Buffers with which a pass that streams everything never keeps the link waiting.

    While a layer's mixer is computed nothing leaves the ring; so ring and landing places have to hold what the link
    brings in that time, in whole groups, and one more that lands.

    Args:
        rows: of the pass.
        layers: of the model.
        most: experts of a group.
        landing: places for a group each that it comes through.
        costs: measured.
    """
    between = BESIDE * costs.row * rows / layers
    return most * max(1, math.ceil(between / max(costs.link, 1.0) / most) + 1 - landing)
