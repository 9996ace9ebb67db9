"""The grids of the IQ types, the signs that go with them, and the search for the nearest codeword."""
