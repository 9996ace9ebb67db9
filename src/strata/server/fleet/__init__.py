"""Several models behind one address: which of them are in memory, and which request goes to which."""
