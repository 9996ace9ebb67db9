"""Whether the server is there, and what it is."""

from typing import Any

import strata
from strata.server.desk import Desk
from strata.server.fleet.fleet import Fleet
from strata.server.served import Served
from strata.worker import State


def health(fleet: Fleet) -> tuple[int, dict[str, Any]]:
    """Status of HTTP and the state in words: 200 only where a request would be answered.

    Of several models it is enough that one can be loaded or is there.
    """
    if fleet.first.awaited:
        return _health(fleet.first)
    told: dict[str, Any] = {"models": {served.name: fleet.state(served) for served in fleet.all}}
    if any(fleet.able(served) for served in fleet.all):
        return 200, {"status": "ok", **told}
    reasons = {served.name: fleet.history[served.name].reason for served in fleet.all}
    return 503, {"status": "error", **told, "reason": reasons}


def _health(served: Served) -> tuple[int, dict[str, Any]]:
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


def props(desk: Desk, served: Served) -> dict[str, Any]:
    """How a model is served and with what settings, in the words of llama.cpp."""
    ready = served.known
    told: dict[str, Any] = {
        "model_alias": served.name,
        "model_path": served.path,
        "chat_template": served.template is not None,
        "build_info": f"strata {strata.__version__}",
        "state": desk.fleet.state(served),
        "modalities": {"vision": False, "audio": False},
    }
    if ready is not None:
        rules = desk.rules(served)
        drafts = rules.drafting.get("depth", 0)
        sampling = {**ready.sampling, **rules.sampling}
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
            "plan": list(ready.plan),
            "drafts": {"most": drafts, "head": ready.limits.head},
            "unused_tensors": list(ready.unused),
        }
    return told


def slots(served: Served) -> list[dict[str, Any]]:
    """The conversations that can be computed at a time, and how many are; nothing of what they say."""
    ready, status = served.known, served.status
    if ready is None:
        return []
    return [
        {"id": place, "n_ctx": ready.context, "is_processing": place < status.running}
        for place in range(ready.limits.conversations)
    ]


def models(fleet: Fleet) -> dict[str, Any]:
    """The list of models, as both OpenAI's and Anthropic's clients read it."""
    all_ = [model(fleet, served) for served in fleet.all]
    return {"object": "list", "data": all_, "has_more": False, "first_id": all_[0]["id"], "last_id": all_[-1]["id"]}


def model(fleet: Fleet, served: Served) -> dict[str, Any]:
    """One model; `status` as llama.cpp says it."""
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
        "aliases": list(served.aliases),
        "status": _status(fleet, served),
        "created_at": datetime.fromtimestamp(served.created, UTC).isoformat().replace("+00:00", "Z"),
        **meta,
    }


def _status(fleet: Fleet, served: Served) -> dict[str, Any]:
    """Whether it is in memory: loaded, loading, unloading or unloaded; and why not, if it should be."""
    state = fleet.state(served)
    word = {"ready": "loaded", "busy": "loaded", "unloading": "unloading"}.get(state, "loading")
    told: dict[str, Any] = {"value": "unloaded" if state in {"asleep", "failed", "closed"} else word, "state": state}
    waiting, reason = fleet.waiting(served), fleet.history[served.name].reason
    return told | ({"waiting": waiting} if waiting else {}) | ({"failed": True, "reason": reason} if reason else {})
