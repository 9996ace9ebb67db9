"""In which type a model's attention cache keeps keys and values."""

from dataclasses import replace
from typing import TYPE_CHECKING

from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.model.config import ModelConfig


def check_kv(kv: str | None) -> None:
    """Refuse what is no name of a type; None stands for the device's own.

    Raises:
        RequestError: it is not a text.
    """
    if kv is not None and not isinstance(kv, str):
        raise RequestError(f"the type of the cache must be a text such as 'q8', not {kv!r}")


def cached_as(c: "ModelConfig", kv: str | None) -> "ModelConfig":
    """The dimensions with another type for keys and values; None is f32.

    Raises:
        RequestError: there is no such type, or it cannot hold heads of this width.
    """
    from strata.model.kv import DEVICE_TYPES, codec

    check_kv(kv)
    kv = "f32" if kv is None else kv
    how = None if kv in DEVICE_TYPES else codec(kv)
    if how is not None:
        how.stored(c.qsa.nkv, c.qsa.hd)
    return replace(c, qsa=replace(c.qsa, kv=kv))
