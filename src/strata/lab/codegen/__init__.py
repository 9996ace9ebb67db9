"""What the compiler makes of each GPU kernel, counted per architecture and held against a recorded baseline.

No GPU is needed: Triton compiles for architectures that are not there, and its package carries a disassembler. A change
made for one card that adds instructions, registers, spills or narrower loads on another is found here (`check`).

``python -m strata.lab.codegen`` checks, ``--update`` records.
"""
