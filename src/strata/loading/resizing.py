"""Another share of a GPU's memory for a model that runs: arithmetic, and a refusal with numbers."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strata.errors import RequestError, RoomError
from strata.loading.device import CPU, Placement
from strata.loading.shown import shown_bytes

if TYPE_CHECKING:
    from strata.memory.slots import SlotCache
    from strata.ops.tiers.tier import Tier


def check_vram(vram: Any) -> None:
    """Refuse what is no number of bytes.

    Raises:
        RequestError: it is not one.
    """
    if isinstance(vram, bool) or not isinstance(vram, int) or vram < 1:
        raise RequestError(f"vram must be a number of bytes of at least 1, not {vram!r}")


def resize(tier: "Tier | None", at: Placement, vram: int) -> Placement:
    """Let a model take as much of a GPU's memory from now on. Nothing may be computed meanwhile.

    Slots get what conversations, other weights and work space leave, as at the start; they are what changes.

    Args:
        tier: where its experts lie; None if they have one place.
        at: what it takes now.
        vram: bytes to take at most.

    Returns:
        What it takes from now on.

    Raises:
        RequestError: no such size makes sense for this model, or RAM has no places for those that would go.
        RoomError: it would grow, and so much memory is not free; nothing has changed.
        TierError: the system cannot take slots away.
    """
    check_vram(vram)
    if tier is None:
        raise RequestError(_one_place(at))
    cache: SlotCache = tier.cache  # type: ignore[assignment]  # what loading gave it
    tier.borrowing.give_back()
    other = at.weights - at.slots + at.cache + at.work
    if vram < other + at.kept:
        kept = f", {shown_bytes(at.kept)} to keep free" if at.kept else ""
        raise RequestError(
            f"{at.name or at.device} cannot go down to {shown_bytes(vram)}: {shown_bytes(other + at.kept)} are needed "
            f"without a single routed expert ({shown_bytes(at.weights - at.slots)} of other weights, "
            f"{shown_bytes(at.cache)} for conversations, {shown_bytes(at.work)} of work space{kept}). To give all of "
            "it back, unload the model (--idle)"
        )
    whole = sum(cache.sizes[kind] for kind in cache.classes) * cache.experts
    room = min(vram - other - at.kept, whole + tier.room.waste)
    slots = _divided(cache, max(0, room - tier.room.waste))
    _check_ram(tier, cache, slots)
    spare = _spare(tier, other) + at.kept
    try:
        tier.resize(slots, spare)
    except RoomError as error:
        free, now = max(0, tier.room.free() - spare), other + at.kept + tier.room.nbytes
        raise RoomError(
            f"the model has {shown_bytes(now)} of {at.name or at.device} and cannot grow to {shown_bytes(vram)}: "
            f"{shown_bytes(free)} are free beside what conversations and work space may still take and what is kept "
            f"free, so {shown_bytes(now + free)} is the most now; nothing has changed"
        ) from error
    room = min(room, whole)
    held = sum(count * size for count, size in zip(slots, cache.sizes, strict=True))
    told = (
        f"Since it was loaded the memory was shared out anew: {sum(slots):,} of {tier.table.numel():,} experts are in "
        f"VRAM, of which {shown_bytes(vram)} may be taken."
    )
    return replace(at, weights=at.weights - at.slots + room, slots=room, share=held / whole, plan=(told,))


def _divided(cache: "SlotCache", room: int) -> tuple[int, ...]:
    from strata.memory.slots import divide

    return divide(room, cache.sizes, cache.classes, cache.experts, cache.counts())


def _check_ram(tier: "Tier", cache: "SlotCache", slots: tuple[int, ...]) -> None:
    """Refuse slots so few that the others' experts could not be computed.

    RAM may have been planned for what found no slot at the start, which can be a handful.

    Raises:
        RequestError: it has too few places for those.
    """
    if tier.supply is None:
        return
    from strata.memory.budget.least import HELD

    stock = tier.supply.stock
    least = max(HELD, tier.host.mailbox.topk)
    for kind, places in enumerate(stock.counts):
        layers = [layer for layer, own in enumerate(stock.classes) if own == kind]
        own = {cache.classes[layer] for layer in layers}
        alone = [one for one in own if all(stock.classes[i] == kind for i, c in enumerate(cache.classes) if c == one)]
        away = len(layers) * cache.experts - sum(slots[one] for one in alone)
        if places < min(least, away):
            raise RequestError(
                f"RAM was planned for the experts that had no place in VRAM, and has room for {places} of one size; "
                f"to compute {away} from there it needs room for {least} at a time. Start the model with this --vram, "
                "and its memory is shared out anew"
            )


def _spare(tier: "Tier", other: int) -> int:
    """Of what is not for slots, bytes that have not been taken yet, but may be by the next prompt."""
    from strata.loading.sizes import FIXED

    device = tier.table.device
    if device.type != "cuda":
        return 0
    import torch

    torch.cuda.empty_cache()
    return max(0, other - FIXED - torch.cuda.memory_reserved(device))


def _one_place(at: Placement) -> str:
    if at.device == CPU:
        return "this model runs on the CPU; there is no GPU's memory to give back or to take"
    return (
        f"all experts of this model lie in the memory of {at.name} and nowhere else, so none can be given back; start "
        f"it with a --vram below {shown_bytes(at.weights + at.cache + at.work)} to have them in RAM, too, or unload it "
        "(--idle)"
    )
