"""Where bytes live: which experts the card holds, and what becomes of the others. NumPy and Numba alone, no torch."""
