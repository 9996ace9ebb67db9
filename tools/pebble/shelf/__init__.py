"""From a trained checkpoint to the GGUF files that ship."""
