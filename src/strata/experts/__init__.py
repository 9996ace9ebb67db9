"""Experts in their quantised form on the CPU: the order of operations, its judge, and compiled kernels."""
