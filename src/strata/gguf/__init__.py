"""Model files in the GGUF container: a lazy reader, split sets, a writer, checks of a file's health.

Knows nothing of any architecture: names and numbers are passed on as they stand (gguf-tensors spec, sections 1 and 8).
"""

from strata.gguf.check import BadBlocks, Hole, checksums, find_bad_blocks, find_holes
from strata.gguf.directory import TensorDirectory, open_model
from strata.gguf.metadata import Metadata, MissingKeyError
from strata.gguf.tensors import TensorInfo
from strata.gguf.writer import TensorData, write_model

__all__ = [
    "BadBlocks",
    "Hole",
    "Metadata",
    "MissingKeyError",
    "TensorData",
    "TensorDirectory",
    "TensorInfo",
    "checksums",
    "find_bad_blocks",
    "find_holes",
    "open_model",
    "write_model",
]
