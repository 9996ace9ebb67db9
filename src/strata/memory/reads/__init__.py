"""Reading pieces of files by several threads at once, past the system's file cache where it can be passed."""

from strata.memory.reads.file import ReadFile
from strata.memory.reads.readers import Item, Readers, Ticket

__all__ = ["Item", "ReadFile", "Readers", "Ticket"]
