"""The kernel of several matrices times the same rows; see `strata.ops.matvec.together`."""

import triton
import triton.language as tl

from strata.ops.dependent import release
from strata.ops.matvec.float_kernel import store_float_product
from strata.ops.matvec.kernel import first_rows, store_product


@triton.jit(do_not_specialize=["fn0", "fn1", "n0", "n1", "n2"])
def together_kernel(x, q, s, z, f0, f1, fout0, fout1, fn0, fn1, w0, w1, w2, table0, table1, table2, out0, out1, out2,
                    n0, n1, n2, FLOATS: tl.constexpr, KIND0: tl.constexpr, KIND1: tl.constexpr, KIND2: tl.constexpr,
                    T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, L: tl.constexpr, B: tl.constexpr,
                    D: tl.constexpr, FH: tl.constexpr, FC: tl.constexpr, FD: tl.constexpr, FF: tl.constexpr,
                    LEVELS: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """Float matrices f0 and f1, then quantised ones w0 to w2: programs are shared out in that order.

    Those that are not there have no rows, and their types are None.
    """
    release(PDL)
    program = tl.program_id(0)
    if FLOATS > 0:
        mine = (fn0 + FH - 1) // FH
        if program < mine:
            store_float_product(f0, x, fout0, program * FH, fn0, B * 32, T, 1, FH, FC, FD, FF, LEVELS, PDL)
        program -= mine
    if FLOATS > 1:
        mine = (fn1 + FH - 1) // FH
        if program >= 0 and program < mine:
            store_float_product(f1, x, fout1, program * FH, fn1, B * 32, T, 1, FH, FC, FD, FF, LEVELS, PDL)
        program -= mine
    if KIND0 is not None:
        mine = (n0 + RR * H - 1) // (RR * H)
        if program >= 0 and program < mine:
            store_product(
                w0,
                table0,
                (q, s, z),
                first_rows(T),
                s,
                out0,
                program * (RR * H),
                n0,
                KIND0,
                T,
                RR,
                H,
                L,
                B,
                D,
                False,
                PDL,
            )
        program -= mine
    if KIND1 is not None:
        mine = (n1 + RR * H - 1) // (RR * H)
        if program >= 0 and program < mine:
            store_product(
                w1,
                table1,
                (q, s, z),
                first_rows(T),
                s,
                out1,
                program * (RR * H),
                n1,
                KIND1,
                T,
                RR,
                H,
                L,
                B,
                D,
                False,
                PDL,
            )
        program -= mine
    if KIND2 is not None:  # noqa: SIM102  # the first is decided when compiling
        if program >= 0:
            store_product(
                w2,
                table2,
                (q, s, z),
                first_rows(T),
                s,
                out2,
                program * (RR * H),
                n2,
                KIND2,
                T,
                RR,
                H,
                L,
                B,
                D,
                False,
                PDL,
            )
