"""Routes of our own and of llama.cpp: health, tokens, properties, numbers."""
