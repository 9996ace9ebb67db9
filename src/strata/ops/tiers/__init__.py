"""Experts in tiers: some in slots of the GPU's memory, all of them in RAM; docs/tiers.md."""
