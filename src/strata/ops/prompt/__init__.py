"""Prompts on a GPU: many rows at a time through matrix-matrix kernels on tensor cores."""
