"""Operations of the forward pass: for each, a plain torch reference and, where there is one, a kernel."""

from strata.errors import RequestError
from strata.model.config import ModelConfig
from strata.model.ops import Ops
from strata.ops.cpu import CpuOps

__all__ = ["bind"]


def bind(device: str, config: ModelConfig) -> Ops:
    """Return the operations of a device for a model's dimensions.

    Raises:
        RequestError: there are no operations for that device.
    """
    if device != "cpu":
        raise RequestError(f"no operations for device {device!r}; this version runs on 'cpu'")
    return CpuOps(config)
