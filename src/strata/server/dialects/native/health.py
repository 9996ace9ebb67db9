"""Whether the server is there, and what it is."""

from typing import Any

import strata
from strata.server.desk import Desk
from strata.server.served import Served
from strata.worker import State


def health(served: Served) -> tuple[int, dict[str, Any]]:
    """Status of HTTP and the state in words: 200 only where a request would be answered."""
    status = served.status
    if served.ready:
        asleep = status.state is State.ASLEEP
        return 200, {"status": "ok", "state": "asleep" if asleep else str(status.state)}
    told: dict[str, Any] = {"status": "loading", "state": str(status.state), "loaded": status.loaded}
    if status.state in {State.FAILED, State.CLOSED}:
        told["status"] = "error"
    if status.reason:
        told["reason"] = status.reason
    return 503, told


def props(desk: Desk) -> dict[str, Any]:
    """What is served and with what settings, in the words of llama.cpp."""
    served = desk.served
    ready, status = served.known, served.status
    told: dict[str, Any] = {
        "model_alias": served.name,
        "model_path": served.path,
        "chat_template": served.template is not None,
        "build_info": f"strata {strata.__version__}",
        "state": str(status.state),
        "modalities": {"vision": False, "audio": False},
    }
    if ready is not None:
        drafts = desk.options.drafting.get("depth", 0)
        sampling = {**ready.sampling, **desk.options.sampling}
        told |= {
            "model": ready.model,
            "engine": ready.engine,
            "fingerprint": ready.fingerprint,
            "n_ctx": ready.context,
            "n_vocab": ready.vocabulary,
            "total_slots": ready.limits.conversations,
            "queue": ready.limits.queue,
            "default_generation_settings": {"n_ctx": ready.context, "params": sampling},
            "rope_scale": ready.rope_scale,
            "kv": ready.kv,
            "device": ready.device,
            "placed": ready.placed,
            "why": ready.why,
            "drafts": {"most": drafts, "head": ready.limits.head},
            "unused_tensors": list(ready.unused),
        }
    return told


def slots(desk: Desk) -> list[dict[str, Any]]:
    """The conversations that can be computed at a time, and how many are; nothing of what they say."""
    ready, status = desk.served.known, desk.served.status
    if ready is None:
        return []
    return [
        {"id": place, "n_ctx": ready.context, "is_processing": place < status.running}
        for place in range(ready.limits.conversations)
    ]


def models(served: Served) -> dict[str, Any]:
    """The list of models, as both OpenAI's and Anthropic's clients read it."""
    one = model(served)
    return {"object": "list", "data": [one], "has_more": False, "first_id": one["id"], "last_id": one["id"]}


def model(served: Served) -> dict[str, Any]:
    """One model."""
    ready = served.known
    from datetime import UTC, datetime

    meta = {} if ready is None else {"max_model_len": ready.context, "meta": {"n_vocab": ready.vocabulary}}
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "strata",
        "type": "model",
        "display_name": served.name,
        "created_at": datetime.fromtimestamp(served.created, UTC).isoformat().replace("+00:00", "Z"),
        **meta,
    }
