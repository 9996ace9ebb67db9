"""What experts on their way take on a device; known without Triton, for plans of memory."""

TOGETHER = 16
"""Experts a launch brings to slots: more than enough to fill the link, and what the stage has room for."""

BUFFERS = 96
"""Experts of the ring for prompts: three groups of as many as fill the link."""

LANDING = 3
"""Places for a group each, between RAM and the ring: one lands, one is made to slots, one waits."""


def ring_bytes(largest: int, stored: int, buffers: int = BUFFERS) -> int:
    """Memory of a ring of slots and of the places where the file's blocks land before.

    Args:
        largest: bytes of the largest layer's slots.
        stored: bytes of its experts in the file.
        buffers: of the ring.
    """
    return (buffers + 1) * largest + LANDING * -(-buffers // 3) * stored
