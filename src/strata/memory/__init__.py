"""Where bytes live: the plan, which experts the card holds, and what becomes of the others. No torch."""
