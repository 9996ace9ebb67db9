"""One module per family of block types: how its bytes become registers of codes, and scales."""

from strata.experts.kernels.decoded import Decoder
from strata.experts.kernels.decoders.iq1 import IQ1_M
from strata.experts.kernels.decoders.iq2 import IQ2_S, IQ2_XS
from strata.experts.kernels.decoders.iq3 import IQ3_S, IQ3_XXS
from strata.experts.kernels.decoders.k import Q4_K, Q5_K, Q6_K
from strata.experts.kernels.decoders.nibbles import IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q4_1, Q5_1
from strata.experts.kernels.decoders.q2_0 import Q2_0, Q2_0_128
from strata.experts.kernels.decoders.q8_0 import Q8_0

__all__ = ["DECODERS"]

_ALL = (
    *(Q8_0, Q2_0, Q2_0_128, IQ4_NL, IQ4_XS, MXFP4, Q4_1, Q5_1, Q4_K, Q5_K, Q6_K, NVFP4),
    *(IQ3_XXS, IQ3_S, IQ2_XS, IQ2_S, IQ1_M),
)
DECODERS: dict[str, Decoder] = {decoder.name: decoder for decoder in _ALL}
