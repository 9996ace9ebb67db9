"""What experts on their way take on a device; known without Triton, for plans of memory."""

TOGETHER = 16
"""Experts a launch brings to slots: more than enough to fill the link, and what the stage has room for."""

BUFFERS = 96
"""Experts of the ring for long prompts: three groups of as many as fill the link."""

HALVES = 2
"""Groups of the ring for short prompts, and places before it: one comes while the other is computed. Their experts are
asked for layer by layer, so nothing has to be kept while a mixer is computed."""

LANDING = 3
"""Places for a group each, between RAM and the ring: one lands, one is made to slots, one waits."""


def room_bytes(largest: int, stored: int, room: int) -> int:
    """Memory of the room that windows have for what the link brings, and short prompts for their ring.

    Args:
        largest: bytes of the largest layer's slots; one more than there are, so that it can begin where slots do.
        stored: bytes of its experts in the file.
        room: experts.
    """
    return (room + 1) * largest + room * stored


def ring_bytes(largest: int, stored: int, buffers: int = BUFFERS) -> int:
    """Memory of a ring of slots and of the places where the file's blocks land before.

    Args:
        largest: bytes of the largest layer's slots.
        stored: bytes of its experts in the file.
        buffers: of the ring.
    """
    return (buffers + 1) * largest + LANDING * -(-buffers // 3) * stored
