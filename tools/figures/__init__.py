"""What is claimed of experts in tiers, measured on one machine with a GPU; `tools/gpu_tiers.py` is the command."""
