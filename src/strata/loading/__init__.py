"""From a file to what can be run: what its header says (no torch), then the network with its weights."""
