"""Write the tables of docs/performance.md from the measured results: `python tools/performance.py [--check]`.

Text between the tables is the page's own. A figure that nobody has measured is shown as such.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from figures import record
from figures.tables import page

PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "bench" / "results"


def main() -> int:
    """Write the page, or say whether it is as it would be written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is another")
    given = parser.parse_args()
    before = PAGE.read_text()
    now = page(before, record.read(RESULTS / "h200-tiers.json"), record.read(RESULTS / "h200-resident.json"))
    if given.check:
        return int(now != before)
    PAGE.write_text(now)
    return 0


if __name__ == "__main__":
    sys.exit(main())
