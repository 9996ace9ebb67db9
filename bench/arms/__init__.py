"""What benchmarks share that compare checkouts."""
