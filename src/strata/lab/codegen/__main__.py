"""``python -m strata.lab.codegen``: check every kernel's machine code, or record it."""

import argparse
import sys

from strata.errors import StrataError
from strata.lab.codegen import baseline
from strata.lab.codegen.build import version
from strata.lab.codegen.check import compare, measure
from strata.lab.codegen.kernel import Kernel
from strata.lab.codegen.kernels import all_kernels


def main(arguments: list[str] | None = None) -> int:
    """Run the check; 1 if anything differs from what is recorded."""
    parser = argparse.ArgumentParser(prog="python -m strata.lab.codegen", description=__doc__)
    parser.add_argument("--update", action="store_true", help="record what is found")
    parser.add_argument("--whole", action="store_true", help="every type, number of rows and shape; takes an hour")
    parser.add_argument("--table", action="store_true", help="print instructions per weight, registers and spills")
    chosen = parser.parse_args(arguments)
    kernels = all_kernels(whole=chosen.whole)
    measured, findings = measure(kernels)
    if chosen.table:
        print_table(kernels, measured)
    if chosen.update:
        print(f"recorded {len(measured)} in {baseline.write(version(), measured)}")
    else:
        try:
            findings += compare(measured, baseline.read(version()))
        except StrataError as error:
            print(error, file=sys.stderr)
            return 1
    for finding in findings:
        print(finding)
    print(f"{len(measured)} kernels compiled with Triton {version()}; {len(findings)} findings")
    return 1 if findings else 0


def print_table(kernels: list[Kernel], measured: baseline.Baseline) -> None:
    """One line per kernel and architecture."""
    print(f"{'kernel':44} {'sm':>4} {'instr/weight':>12} {'registers':>9} {'spills':>6} {'instructions':>12}")
    for kernel in kernels:
        for architecture in kernel.architectures:
            counts = measured.get((kernel.name, architecture))
            if counts is None:
                continue
            shown = f"{counts.per_weight / 1000:.2f}" if counts.per_weight else "-"
            row = f"{kernel.name:44} {architecture:>4} {shown:>12} {counts.registers:>9} {counts.stack:>6}"
            print(f"{row} {counts.instructions:>12}")


if __name__ == "__main__":
    sys.exit(main())
