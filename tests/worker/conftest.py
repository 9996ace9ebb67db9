import json
import threading
import time
from pathlib import Path

import psutil
import pytest

from strata.worker import Care, Client, ScriptedEngine

QUICK = Care(hang=1.0, loading_hang=20.0, beat=0.05, pause=0.05)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def leaves_nothing():
    """No thread, no open file and no process is left behind."""
    threads, files = set(threading.enumerate()), open_files()
    children = set(psutil.Process().children(recursive=True))
    yield
    end = time.monotonic() + 5
    while time.monotonic() < end:
        left = set(threading.enumerate()) - threads, set(psutil.Process().children(recursive=True)) - children
        if not any(left) and open_files() <= files:
            return
        time.sleep(0.02)
    assert not any(left), left
    assert open_files() <= files


@pytest.fixture
def scripted(tmp_path, leaves_nothing):  # noqa: ARG001
    """Starts clients of scripted engines, and closes them."""
    clients: list[Client] = []

    def start(*turns: dict[str, object], care: Care = QUICK, **setup: object) -> Client:
        file = tmp_path / f"script-{len(clients)}.json"
        file.write_text(json.dumps({"turns": list(turns)}), encoding="utf-8")
        clients.append(Client(ScriptedEngine(str(file), **setup), care))  # type: ignore[arg-type]
        return clients[-1]

    yield start
    for client in clients:
        client.close()
