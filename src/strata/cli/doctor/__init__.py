"""`strata doctor`: what this machine has, and what will work on it."""
