"""Matrix product of token rows with a weight matrix."""
