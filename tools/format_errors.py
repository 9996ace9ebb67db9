"""Write the tables of docs/formats.md: every block type, and the error of those we write.

python tools/format_errors.py            measure, print, and rewrite the tables in place
python tools/format_errors.py --check    measure, and fail if the document says otherwise

Errors are measured on 262,144 Gaussian weights from a fixed seed. With --check an error may differ from the printed one
by one unit of its last digit, because another BLAS may add in another order; everything else must be equal.
"""

import argparse
import re
import sys
from pathlib import Path

import numpy as np

from strata.formats import TYPES, BlockType, dequantise, quantise

DOCUMENT = Path(__file__).parent.parent / "docs" / "formats.md"
SIGMA = 0.02  # about the spread of a language model's weights
SEED = 20260701


def types_table() -> str:
    """One row per type; the layout is the first line of its reader's docstring."""
    lines = ["| type | id | weights | bytes | bits/weight | written | block |", "|---|---|---|---|---|---|---|"]
    for kind in TYPES:
        layout = (kind.dequantise.__doc__ or "").splitlines()[0].rstrip(".").replace("``", "`")
        written = "yes" if kind.quantise else "no"
        lines.append(
            f"| {kind.name} | {kind.id} | {kind.weights} | {kind.bytes} | {kind.bits:g} | {written} | {layout} |"
        )
    return "\n".join(lines)


def errors_table() -> str:
    """One row per writable type, most bits first."""
    x = (np.random.default_rng(SEED).standard_normal((1024, 256)) * SIGMA).astype(np.float32)
    lines = ["| type | bits/weight | relative RMS error, % | largest error / sigma |", "|---|---|---|---|"]
    for kind in sorted((kind for kind in TYPES if kind.quantise), key=lambda kind: -kind.bits):
        rms, largest = measure(kind, x)
        lines.append(f"| {kind.name} | {kind.bits:g} | {digits(100 * rms)} | {digits(largest)} |")
    return "\n".join(lines)


def measure(kind: BlockType, x: np.ndarray) -> tuple[float, float]:
    """Root mean square error over root mean square weight, and the largest error over sigma."""
    error = dequantise(kind, quantise(kind, x)).astype(np.float64) - x
    rms = np.sqrt(np.mean(error**2) / np.mean(x.astype(np.float64) ** 2))
    return float(rms), float(np.abs(error).max() / SIGMA)


def digits(value: float) -> str:
    """Three significant digits."""
    return f"{value:#.3g}"


TABLES = {"types": types_table, "errors": errors_table}


def section(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name}: begin -->\n).*?(?=\n<!-- {name}: end -->)", re.DOTALL)


def differences(printed: str, measured: str) -> list[str]:
    """Rows that differ by more than one unit of a number's last digit."""
    old, new = printed.splitlines(), measured.splitlines()
    if len(old) != len(new):
        return [f"{len(old)} rows are printed, {len(new)} measured"]
    return [f"printed  {a}\nmeasured {b}" for a, b in zip(old, new, strict=True) if not _agree(a, b)]


def _agree(printed: str, measured: str) -> bool:
    if printed == measured:
        return True
    old, new = printed.split(" | "), measured.split(" | ")
    return len(old) == len(new) == 4 and old[:2] == new[:2] and all(map(_close, old[2:], new[2:]))


def _close(printed: str, measured: str) -> bool:
    a, b = printed.strip(" |"), measured.strip(" |")
    if not re.fullmatch(r"\d+\.\d*", a):
        return False
    unit = 10.0 ** -len(a.partition(".")[2])
    return abs(float(a) - float(b)) <= 1.001 * unit


def main(arguments: list[str] | None = None, document: Path = DOCUMENT) -> int:
    """Exit status: 0, or 1 if the document is out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the document instead of rewriting it")
    check = parser.parse_args(arguments).check
    text = document.read_text(encoding="utf-8")
    stale = False
    for name, make in TABLES.items():
        found = section(name).search(text)
        if found is None:
            print(f"{document}: no section between '<!-- {name}: begin -->' and '<!-- {name}: end -->'")
            return 1
        table = make()
        if check:
            for difference in differences(found.group(), table):
                stale = True
                print(f"{document}: table of {name} is out of date\n{difference}")
        else:
            print(table + "\n")
            text = text[: found.start()] + table + text[found.end() :]
    if not check:
        document.write_text(text, encoding="utf-8")
    elif stale:
        print("run: python tools/format_errors.py")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
