"""Conversations: who is computed next, and what is kept of what was computed.

`prefix`, `spacing` and `queue` are pure state machines without torch; importing this room imports no torch either.
"""
