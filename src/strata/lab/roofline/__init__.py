"""Where a window's time goes on a GPU, and how far each kernel is from what the memory allows.

``python -m strata.lab.roofline MODEL.gguf``, or ``strata bench roofline``: per kernel the bytes it has to move, its
share of the window, and how much of the measured bandwidth that is; instructions a weight where they are recorded
(`strata.lab.codegen`).
"""
