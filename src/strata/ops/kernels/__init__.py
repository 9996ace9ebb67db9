"""Every compiled form of every kernel that code generation is checked for, importable without a GPU.

`KERNELS` lists what to compile: function, types of arguments, constants, launch options. It holds
`triton.JITFunction` objects only in a process in which Triton was imported without its interpreter; compile in a
process of its own.
"""

from collections.abc import Iterator

from strata.ops.dependent import FIRST
from strata.ops.experts.kernels import combine_kernel, down_kernel, gate_up_kernel
from strata.ops.experts.plan import plan_kernel
from strata.ops.experts.variants import VARIANTS as EXPERT_VARIANTS
from strata.ops.kernels.entry import Kernel
from strata.ops.kernels.prompt import CORE as PROMPT_CORE
from strata.ops.kernels.prompt import prompt
from strata.ops.kernels.tiers import tiers
from strata.ops.kernels.window import OTHERS as WINDOW_OTHERS
from strata.ops.kernels.window import window
from strata.ops.matvec.float_kernel import float_kernel
from strata.ops.matvec.floats import constants as float_constants
from strata.ops.matvec.kernel import product_kernel, quantise_kernel
from strata.ops.matvec.variants import VARIANTS as MATVEC_VARIANTS
from strata.ops.planes import LAYOUTS
from strata.ops.variants import Tile, resolve

ARCHS = (75, 80, 86, 89, 90, 120)
_HIDDEN, _INNER, _LONG = 2560, 640, 6144  # widths of the real model: gate and up, down, attention outputs
_ROWS = (1, 2, 4, 8)


def _product(arch: int, block_type: str, rows: int, width: int, tile: Tile, shape_: str) -> Kernel:
    blocks = width // 32
    signature = {
        "w": "*u8", "table": "*i16", "q": "*i32", "s": "*fp32", "z": "*fp32", "scale": "*fp32", "out": "*fp32",
        "N": "i32", "ROWS": "i32",
    }  # fmt: skip
    constants = {
        "KIND": block_type, "T": min(rows, tile.group), "GROUPED": rows > tile.group,
        **tile.constants(blocks), "SCALED": block_type == "NVFP4", "PDL": arch >= FIRST,
    }  # fmt: skip
    return Kernel(
        f"matvec.{block_type}.T{rows}.{shape_}",
        product_kernel,
        signature,
        constants,
        ("w", "table", "q", "s", "z", "scale", "out"),
        tile.warps,
        weights=tile.rows * tile.tiles * width,
    )


_LISTS = {"slots": "*i32", "counts": "*i32", "pairs": "*i32", "totals": "*i32", "experts": "*i32"}


def _gate_up(arch: int, block_type: str, most: int, tile: Tile, beside: str | None = None) -> Kernel:
    signature = {
        "slots_base": "*u8", "stride": "i32", "up_at": "i32", "gate_grid": "*i16", "up_grid": "*i16", "q": "*i32",
        "s": "*fp32", "z": "*fp32", "gate_scale": "*fp32", "up_scale": "*fp32", "h": "*fp32", **_LISTS, "N": "i32",
        "PAIRS": "i32", "beside": "*u8", "beside_up_at": "i32", "beside_gate_grid": "*i16", "beside_up_grid": "*i16",
    }  # fmt: skip
    constants = {
        "LEAST": 1, "MOST": most, "ROWS": most, "TOPK": 10, "GATE": block_type, "UP": block_type,
        "BESIDE": beside, "BESIDE_UP": beside,
        **tile.constants(_HIDDEN // 32), "SCALED": block_type == "NVFP4", "PDL": arch >= FIRST,
    }  # fmt: skip
    aligned = tuple(name for name in signature if name not in {"N", "PAIRS"})
    name = f"experts.gate_up.{block_type}{'' if beside is None else '.beside'}.T{most}"
    return Kernel(name, gate_up_kernel, signature, constants, aligned, tile.warps)


def _down(arch: int, block_type: str, most: int, tile: Tile, beside: str | None = None) -> Kernel:
    signature = {
        "slots_base": "*u8", "stride": "i32", "down_at": "i32", "grid": "*i16", "q": "*i32", "s": "*fp32",
        "z": "*fp32", "scale": "*fp32", "y": "*fp32", **_LISTS, "N": "i32", "PAIRS": "i32", "beside": "*u8",
        "beside_grid": "*i16",
    }  # fmt: skip
    constants = {
        "LEAST": 1, "MOST": most, "ROWS": most, "KIND": block_type, "BESIDE": beside,
        **tile.constants(_INNER // 32), "SCALED": block_type == "NVFP4",
        "PDL": arch >= FIRST,
    }  # fmt: skip
    aligned = tuple(name for name in signature if name not in {"N", "PAIRS"})
    name = f"experts.down.{block_type}{'' if beside is None else '.beside'}.T{most}"
    return Kernel(name, down_kernel, signature, constants, aligned, tile.warps)


def _others(arch: int) -> Iterator[Kernel]:
    yield Kernel(
        "quantise", quantise_kernel, {"x": "*fp32", "q": "*i8", "s": "*fp32", "z": "*fp32", "B": "i32"},
        {"BLOCKS": 16, "PDL": arch >= FIRST}, ("x", "q", "s", "z", "B"), warps=4,
    )  # fmt: skip
    lists = {"experts": "*i32", "slots": "*i32", "counts": "*i32", "pairs": "*i32", "totals": "*i32"}
    signature = {"ids": "*i32", "slot_of": "*i32", **lists, **dict.fromkeys(("PAIRS", "T", "E", "shared"), "i32")}
    for size, warps in ((16, 1), (64, 4), (128, 8)):
        yield Kernel(
            f"experts.plan.{size}", plan_kernel, signature, {"M": size, "PDL": arch >= FIRST},
            ("ids", "slot_of", *lists), warps, normative=False,
        )  # fmt: skip
    pointers = dict.fromkeys(("y", "weights", "shared", "shared_weights", "out"), "*fp32")
    yield Kernel(
        "experts.combine", combine_kernel, pointers | {"N": "i32", "topk": "i32"},
        {"SHARED": True, "BLOCK": 256, "PDL": arch >= FIRST},
        (*pointers, "N"), warps=2,
    )  # fmt: skip
    for kind in ("fp32", "bf16", "fp16"):
        for width in (_HIDDEN, 10240, 320):
            for rows in _ROWS:
                chosen = float_constants(width, rows)
                warps = chosen.pop("num_warps")
                yield Kernel(
                    f"floats.{kind}.T{rows}.K{width}", float_kernel,
                    {"w": f"*{kind}", "x": "*fp32", "out": "*fp32", "N": "i32"},
                    {**chosen, "PDL": arch >= FIRST},
                    ("w", "x", "out"), warps, normative=False, weights=chosen["H"] * width,
                )  # fmt: skip


def kernels(arch: int) -> tuple[Kernel, ...]:
    """What a card of that architecture runs: the variants that are on by default there."""
    found = []
    for name in LAYOUTS:
        for rows in _ROWS:
            for width, outputs in ((_HIDDEN, 8192), (_HIDDEN, 248320), (_LONG, _HIDDEN)):
                tile = resolve(MATVEC_VARIANTS, "matvec", arch, name, rows, width, outputs).tile
                found.append(_product(arch, name, rows, width, tile, f"{outputs}x{width}"))
        for rows in (1, 2):
            tile = resolve(EXPERT_VARIANTS, "experts.gate_up", arch, name, rows, _HIDDEN, _INNER).tile
            found.append(_gate_up(arch, name, rows, tile))
        if not any(plane.weights == 256 for plane in LAYOUTS[name].planes):
            for rows in _ROWS:
                tile = resolve(MATVEC_VARIANTS, "matvec", arch, name, rows, _INNER, _HIDDEN).tile
                found.append(_product(arch, name, rows, _INNER, tile, f"{_HIDDEN}x{_INNER}"))
            for rows in (1, 2):
                tile = resolve(EXPERT_VARIANTS, "experts.down", arch, name, rows, _INNER, _HIDDEN).tile
                found.append(_down(arch, name, rows, tile))
    for rows in (1, 2):
        tile = resolve(EXPERT_VARIANTS, "experts.gate_up", arch, "IQ3_XXS", rows, _HIDDEN, _INNER).tile
        found.append(_gate_up(arch, "IQ3_XXS", rows, tile, "Q5_K"))
        tile = resolve(EXPERT_VARIANTS, "experts.down", arch, "IQ4_NL", rows, _INNER, _HIDDEN).tile
        found.append(_down(arch, "IQ4_NL", rows, tile, "Q8_0"))
    return (*found, *_others(arch), *window(arch), *prompt(arch), *tiers(arch))


KERNELS: dict[int, tuple[Kernel, ...]] = {arch: kernels(arch) for arch in ARCHS}

_CORE_TYPES = ("Q8_0", "Q4_K", "Q6_K", "IQ4_NL", "IQ3_XXS", "IQ2_S")
_CORE_SHAPES = ("8192x2560", "2560x640")


def core(arch: int) -> tuple[Kernel, ...]:
    """Less than a quarter of the list, with every kind of decoder, tile and body: what CI has the time to compile."""
    wanted = {f"matvec.{name}.T{rows}.{shape_}" for name in _CORE_TYPES for rows in (1, 4) for shape_ in _CORE_SHAPES}
    wanted |= {"experts.gate_up.IQ3_XXS.T1", "experts.gate_up.IQ3_XXS.T2", "experts.down.IQ4_NL.T1"}
    wanted |= {"experts.down.IQ4_NL.T2", "quantise", "experts.combine", "experts.plan.64", "floats.bf16.T4.K2560"}
    wanted |= {"together.gdn.T1"}
    wanted |= {kernel.name for kernel in window(arch)} - WINDOW_OTHERS
    wanted |= {f"tiers.bring.IQ3_XXS.IQ4_NL{part}" for part in ("", ".gate_up", ".down")}
    wanted |= {kernel.name for kernel in prompt(arch) if kernel.name in PROMPT_CORE}
    return tuple(kernel for kernel in KERNELS[arch] if kernel.name in wanted)
