"""Another share of a GPU's memory for a model that runs."""

import asyncio
from typing import Any

from strata.config.kinds import Bytes, UnfitError
from strata.errors import RequestError, RoomError, StrataError
from strata.server.errors import ApiError, bad
from strata.server.fields import Fields
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import EngineError

MOST = 1 << 50
"""Bytes that may be asked for: no GPU has so many."""

LONGEST = 40
"""Characters of a size."""

_SECONDS = 120.0
"""Seconds that an engine may take; it begins between two windows or passes."""


def read(body: dict[str, Any], options: Options) -> int:
    """The number of bytes in a request.

    Raises:
        ApiError: there is none.
    """
    fields = Fields(body, strict=options.strict)
    fields.any("model")
    value = fields.any("vram")
    if value is None:
        raise bad("vram is missing: what the model may take of the GPU's memory, such as 12000000000 or '12GB'", "vram")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        vram: int = Bytes().check("" if isinstance(value, str) and len(value) > LONGEST else value)
    except UnfitError:
        raise fields.wrong("vram", Bytes().meaning, value) from None
    if not 1 <= vram <= MOST:
        raise bad(f"vram must be from 1 to {MOST} bytes", "vram")
    fields.end()
    return vram


async def resize(vram: int, served: Served) -> dict[str, Any]:
    """Have a model's engine take at most so many bytes, and say what came of it.

    Raises:
        ApiError: it cannot be; nothing has changed, but where an engine that is late may do it yet.
    """
    asked = served.client.ask_resize(vram)
    try:
        async with asyncio.timeout(_SECONDS):
            done = await asyncio.wrap_future(asked)
    except TimeoutError:
        text = f"the engine did not come to it within {_SECONDS:g} s; /v1/strata/status says whether it has since"
        raise ApiError(503, text, code="busy", retry=5) from None
    except RoomError as error:
        raise ApiError(409, str(error), param="vram", code="no_room") from error
    except RequestError as error:
        raise bad(str(error), "vram") from error
    except EngineError as error:
        raise ApiError(503, f"there is no model to resize now: {error}", code="not_ready", retry=1) from error
    except StrataError as error:
        raise ApiError(409, str(error), param="vram", code="not_resizable") from error
    served.loaded()
    return {
        "model": served.name,
        "vram": done.vram,
        "placed": done.placed,
        "slots": done.slots,
        "experts": done.experts,
        "slot_bytes": done.slot_bytes,
    }
