"""How attention cells lie on a device; known without Triton, for plans of memory."""

PAGE = 64
"""Cells of a page."""

RING = 32
"""Raw indexer keys that are there of a conversation in each layer: that of cell c at c % RING.

One is needed until its block is complete, so of what is committed at most 3 are. Behind those a window writes up to 8,
and one that was launched ahead, or a chain of guesses, up to 8 more, before all of them may be computed again with
other tokens: 19 at a time. Longer passes write none before their commit. A block's lie side by side.
"""
