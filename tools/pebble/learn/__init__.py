"""Losses, optimisers, schedule, checkpoints and the training loop."""
