"""The compiled delta rule against its torch forms, as ratios of paired times, at Pebble's and the real model's shapes.

    python bench/delta_rule.py [--rounds 15] [--json bench/results/delta_rule.json]

One thread, whose CPU time counts, so that other work on the machine disturbs little. Rows are those of a window (1, 8)
and of a prompt (64, 512); the chunked form is for prompts.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

SHAPES = {"pebble": (2, 6, 64), "real": (16, 48, 128)}
ROWS = (1, 8, 64, 512)


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import numba
    import torch

    from strata.ops.gdn import chunked, kernel, recurrent

    torch.set_num_threads(1)
    rows = []
    for name, (nk, nv, d) in SHAPES.items():
        for T in arguments.rows:
            generator = torch.Generator().manual_seed(T)
            q, k = torch.nn.functional.normalize(torch.randn(2, T, nk, d, generator=generator), dim=-1)
            v, state = torch.randn(T, nv, d, generator=generator), torch.randn(nv, d, d, generator=generator)
            beta, g = torch.rand(T, nv, generator=generator), -0.3 * torch.rand(T, nv, generator=generator)
            x = (q * d**-0.5, k, v, beta, g, state * 0.1)
            forms = {"kernel": kernel.steps, "recurrent": recurrent.recurrent}
            if T > 8:
                forms["chunked"] = lambda *a: chunked.chunked(*a, 0)
            times: dict[str, list[float]] = {form: [] for form in forms}
            for _ in range(arguments.rounds + 1):  # the first warms up
                for form, run in forms.items():
                    began = time.thread_time()
                    run(*x)
                    times[form].append(time.thread_time() - began)
            kernel_us = statistics.median(times["kernel"][1:]) * 1e6
            row = {"shape": name, "rows": T, "kernel_us": round(kernel_us, 1)}
            row["state_gb_per_s"] = round(8 * nv * d * d * T / kernel_us / 1e3, 1)  # read and written once a row
            for form in list(forms)[1:]:
                ratios = [a / b for a, b in zip(times[form][1:], times["kernel"][1:], strict=True)]
                row[f"{form}_ratio"] = round(statistics.median(ratios), 2)
                row[f"{form}_ratio_least"] = round(min(ratios), 2)
            rows.append(row)
            print(", ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.json:
        conditions = {
            "command": f"python bench/delta_rule.py --rounds {arguments.rounds} --json {arguments.json}",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numba": numba.__version__},
            "ratio": "time of the torch form divided by the kernel's, median over rounds; above 1 the kernel is faster",
        }
        arguments.json.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
