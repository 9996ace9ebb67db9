"""`strata bench`: how fast this machine runs a model, measured in pairs."""
