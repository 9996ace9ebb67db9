"""`strata plan`: who would get how much of a machine's memory, and about how fast a model would be."""
