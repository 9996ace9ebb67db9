"""Prompts whose experts do not all lie on the GPU: they come layer by layer through a ring, under what is computed."""
