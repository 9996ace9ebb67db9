"""How attention cells lie on a device; known without Triton, for plans of memory."""

PAGE = 64
"""Cells of a page."""
