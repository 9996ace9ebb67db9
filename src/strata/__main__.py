"""`python -m strata`: the command where its script is not on the path, as in a bare checkout."""

import sys

from strata.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
