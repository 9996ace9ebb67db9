"""The server's own description of its routes, at /openapi.json."""

from strata.server.openapi.document import document

__all__ = ["document"]
