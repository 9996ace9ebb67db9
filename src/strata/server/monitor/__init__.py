"""What the server knows of itself and its engines, for the page and whoever else watches; numbers, no words."""

from strata.server.monitor.monitor import Monitor

__all__ = ["Monitor"]
