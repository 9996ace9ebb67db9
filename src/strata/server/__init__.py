"""The HTTP server: every dialect that people's tools speak, over the messages of `strata.worker`. No torch.

docs/server.md says what each route takes, gives and leaves out.
"""

from strata.server.options import Options

__all__ = ["Options"]
