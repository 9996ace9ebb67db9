"""`strata pull`: a model from a hub to this machine."""
