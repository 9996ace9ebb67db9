"""One module per family of block types: how its blocks are read and written."""
