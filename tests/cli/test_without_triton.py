"""A machine without a GPU may have a torch that comes without Triton: the README says that any wheel will do."""

import subprocess
import sys

NONE = "import sys; sys.modules['triton'] = None; "


def test_the_plan_and_the_model_need_no_triton() -> None:
    code = NONE + (
        "import strata; from strata.cli.main import main; assert main(['plan']) == 0; "
        "print(strata.load(device='cpu').chat('Count from 1 to 5.').text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1, 2, 3, 4, 5"
