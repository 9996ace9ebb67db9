"""`python -m strata.worker SOCKET PARENT`: started by a client, never by hand."""

import sys

from strata.worker.process import main

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
