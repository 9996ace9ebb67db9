"""Routed experts of a window on the GPU: plan, gate and up with SwiGLU, down, combine."""
