"""The trainer is a package under tools/, not part of the wheel."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
