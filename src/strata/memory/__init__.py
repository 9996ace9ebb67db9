"""Where bytes live: the plan of memory, and what keeps to it."""
