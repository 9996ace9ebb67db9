"""The processor families kernels are written for, best first."""

from strata.experts.kernels.targets.avx2 import Avx2, AvxVnni
from strata.experts.kernels.targets.avx512 import Avx512, Vbmi
from strata.experts.kernels.targets.plain import Plain
from strata.experts.kernels.targets.target import Target

__all__ = ["TARGETS", "Target"]

_ALL: tuple[Target, ...] = (
    Avx512("avx512vbmi", byte_tables=Vbmi()),
    Avx512("avx512", byte_tables=None),
    AvxVnni(),
    Avx2(),
    Plain(),
)
TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
