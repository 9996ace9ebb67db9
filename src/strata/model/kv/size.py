"""Memory that a conversation takes."""

from math import prod

from strata.model.config import Mixer, ModelConfig
from strata.model.kv.codec import DEVICE_TYPES, codec


def token_bytes(c: ModelConfig) -> float:
    """Bytes of all that grows with every token: keys, values, raw and pooled indexer keys, positions.

    The draft head's keys and values are always float32. What does not grow, such as recurrent states, is not in it.
    """
    q = c.qsa
    how = None if q.kv in DEVICE_TYPES else codec(q.kv)
    plain = DEVICE_TYPES.get(q.kv, 4) * q.nkv * q.hd
    row = plain if how is None else prod(how.stored(q.nkv, q.hd)) * how.dtype.itemsize
    indexer = 4 * q.id + 4 * q.id / q.ratio
    return c.mixers.count(Mixer.QSA) * (2 * row + indexer) + 24 + c.mtp * (2 * plain + indexer + 24)
