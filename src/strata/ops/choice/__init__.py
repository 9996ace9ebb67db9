"""What the choice of a token needs of its logits, and which rows of a window follow."""
