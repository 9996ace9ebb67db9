"""The host's half of a window whose experts are not all on the GPU; docs/tiers.md says how the halves meet."""

from strata.experts.misses.host import Disk, Fault, HostLoop, HostStats
from strata.experts.misses.mailbox import Mailbox
from strata.experts.misses.split import Costs, shares

__all__ = ["Costs", "Disk", "Fault", "HostLoop", "HostStats", "Mailbox", "shares"]
