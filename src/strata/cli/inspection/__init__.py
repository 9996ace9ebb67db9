"""`strata inspect`: what a file holds and what would become of it."""
