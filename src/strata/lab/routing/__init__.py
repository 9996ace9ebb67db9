"""Routing of made-up and of recorded texts, and what rules for a cache of experts make of it."""
