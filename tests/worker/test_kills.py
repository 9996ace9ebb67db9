"""`tools/kills.py` in short: Pebble's engine is killed in the middle of answers, and nothing else is lost."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "kills.py"


def test_kept_conversations_and_waiting_requests_outlive_the_engine(tmp_path) -> None:
    spec = importlib.util.spec_from_file_location("kills", TOOL)
    assert spec is not None
    assert spec.loader is not None
    kills = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kills)
    result = kills.kill_again_and_again(tmp_path / "kept", times=2)
    assert result["fewest tokens they had from files"] > 40
