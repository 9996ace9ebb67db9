"""Rules for who stays in the slots, one a file, each a plain statement of its idea."""
