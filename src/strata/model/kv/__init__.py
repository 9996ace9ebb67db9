"""Element types of the attention cache: how a token's keys and values are stored, and read again.

Encoding looks at one head of one token alone, so the stored bytes depend neither on company nor on cuts; and every row,
even the one being computed, is attended as it reads back. So a text has one set of bytes per type, however it came
to be.
The indexer's keys have no types: they stay float32, because rounded ones select other tokens. So do the draft head's
keys and values: a guess looks at all of them, and would take longer if all had to be decoded.
"""

from strata.model.kv.codec import DEVICE_TYPES, TYPES, Codec, codec
from strata.model.kv.size import token_bytes

__all__ = ["DEVICE_TYPES", "TYPES", "Codec", "codec", "token_bytes"]
