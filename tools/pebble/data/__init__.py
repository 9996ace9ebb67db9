"""Training documents: prose found in the Python distribution, and tasks made from a seed."""
