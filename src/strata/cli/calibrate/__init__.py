"""`strata calibrate`: how fast this machine's parts are, measured once and kept."""
