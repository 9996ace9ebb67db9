"""A file of the real model's shapes with random weights, for measuring speed where the real one is out of reach.

``python -m strata.lab.synthetic OUT.gguf`` writes 126 billion parameters, 53.7 GiB, at the speed of the disk: names,
shapes and types of a public 3-bit file, every weight random, a vocabulary of random words and a short n-gram table.
All commands take it (`strata plan`, `run`, `serve`, `bench`); what it answers makes no sense. Values are scaled so that
the numbers stay finite and the router's choice is different for every token, close to uniform. Real text is more
skewed; nothing measured on this file says anything about hit rates.
"""
