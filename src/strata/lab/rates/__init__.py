"""How fast a machine's parts are: memory, disk, CPU kernels, GPU and link. Each with rounds, medians and spread."""
