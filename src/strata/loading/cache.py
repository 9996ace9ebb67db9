"""In which type a model's attention cache keeps keys and values."""

from dataclasses import replace
from typing import TYPE_CHECKING

from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.model.config import ModelConfig


def check_kv(kv: str) -> None:
    """Refuse what is no name of a type.

    Raises:
        RequestError: it is not a text.
    """
    if not isinstance(kv, str):
        raise RequestError(f"the type of the cache must be a text such as 'q8', not {kv!r}")


def cached_as(c: "ModelConfig", kv: str) -> "ModelConfig":
    """The dimensions with another type for keys and values.

    Raises:
        RequestError: there is no such type, or it cannot hold heads of this width.
    """
    from strata.model.kv import codec

    check_kv(kv)
    how = codec(kv)
    if how is not None:
        how.stored(c.qsa.nkv, c.qsa.hd)
    return replace(c, qsa=replace(c.qsa, kv=kv))
