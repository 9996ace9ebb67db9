"""Which version this is; for every room, since the package itself stands above them all."""

__version__ = "0.1.0"
