"""`tools/soak.py` in short: it runs, and what does not depend on how busy this machine is holds."""

import http.server
import importlib.util
import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

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


def test_several_models_for_a_few_seconds(tmp_path) -> None:
    file = tmp_path / "soak.json"
    sizes = ["--clients", "8", "--minutes", "0.08", "--think", "0.2", "--engine", "scripted", "--models", "2"]
    sizes += ["--json", str(file), "--serve", "--loaded-models", "1", "--model-turn", "0.5"]
    done = subprocess.run([sys.executable, str(TOOL), *sizes], capture_output=True, text=True, timeout=240, check=False)
    assert file.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(file.read_text(encoding="utf-8"))
    broken = [promise for promise in told["promises"] if promise["kept"] is False]
    assert [promise for promise in broken if not promise["timing"]] == [], told["faults"]
    assert told["numbers"]["answers"] > 0
    assert sum(told["numbers"]["models loaded, unloaded"]) > 2


def watching():
    spec = importlib.util.spec_from_file_location("soaking_watch", TOOL.parent / "soaking" / "watch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sizes_are_asked_for_in_turn() -> None:
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["vram"])
            told = json.dumps({} if asked[-1] == "1GB" else {"error": {"message": "no room"}}).encode()
            self.send_response(200 if asked[-1] == "1GB" else 409)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            pass

    sys.path.insert(0, str(TOOL.parent))
    try:
        from soaking.sizes import Sizes
    finally:
        sys.path.remove(str(TOOL.parent))
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        sizes = Sizes(server.server_port, ["1GB", "2GB"])
        for _ in range(3):
            sizes.once()
        server.shutdown()
    assert asked == ["1GB", "2GB", "1GB"]
    assert (sizes.taken, len(sizes.seconds), sizes.refused) == (2, 2, {"409: no room": 1})
    nothing = Sizes(1, [])
    nothing.once()
    assert (nothing.taken, dict(nothing.refused)) == (0, {})


def test_the_slope_is_that_of_least_squares_and_its_interval_holds_it_as_often_as_it_says() -> None:
    slope, dice = watching().slope, random.Random(1)
    within = 0
    for _ in range(200):
        samples = [(float(i), 3.0 * i + dice.gauss(0, 50)) for i in range(420)]
        rise, half = slope(samples)
        assert abs(rise - np.polyfit(*zip(*samples, strict=True), 1)[0]) < half
        within += abs(rise - 3.0) <= half
    assert 180 <= within < 200  # 190 are expected
    assert slope([(float(i), 0.0) for i in range(60)])[1] == float("inf")
    assert slope([])[1] == float("inf")


def test_quantiles() -> None:
    quantile, values = watching().quantile, [random.Random(2).random() for _ in range(137)]
    for share in (0.01, 0.5, 0.99, 1.0):
        assert quantile(values, share) == np.quantile(values, share, method="inverted_cdf")
    assert quantile([], 0.99) == 0
