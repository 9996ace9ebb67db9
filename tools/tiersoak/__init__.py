"""What `tools/gpu_soak.py` is made of."""
