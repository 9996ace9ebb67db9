"""`tools/soak.py` in short: it runs, and what does not depend on how busy this machine is holds."""

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[1] / "tools" / "soak.py"


def test_a_few_clients_for_a_few_seconds(tmp_path) -> None:
    file = tmp_path / "soak.json"
    sizes = ["--clients", "12", "--minutes", "0.06", "--think", "0.2", "--engine", "scripted", "--json", str(file)]
    done = subprocess.run([sys.executable, str(TOOL), *sizes], capture_output=True, text=True, timeout=240, check=False)
    assert file.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(file.read_text(encoding="utf-8"))
    broken = [promise for promise in told["promises"] if promise["kept"] is False]
    assert done.returncode == bool(broken), done.stderr[-3000:]
    assert [promise for promise in broken if not promise["timing"]] == [], told["faults"]
    numbers = told["numbers"]
    assert numbers["answers"] > 0
    assert numbers["health looks"] > 5
    assert numbers["requests ended because nobody wanted them"] > 0
    assert any(name.startswith("whole: ") for name in numbers)
