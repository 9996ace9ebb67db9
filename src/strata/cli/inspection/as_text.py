"""A report for people."""

from strata.cli.inspection.report import Part, Report
from strata.cli.table import table
from strata.gguf import TensorDirectory
from strata.loading import ram
from strata.loading.shown import shown_bytes
from strata.model.config import Mixer, ModelConfig
from strata.model.kv import token_bytes


def as_text(facts: Report, listed: TensorDirectory | None, damage: list[str] | None) -> str:
    """The whole report; `listed` adds every tensor, `damage` the result of a check."""
    whole = facts.whole
    parts = [
        "\n".join([facts.config.name, *(f"  {path}" for path in facts.files)]) + "\n",
        _dimensions(facts.config),
        table(
            ("Role", "Tensors", "Weights", "Size", "Types", "With a GPU it goes to"),
            [(role.name, *_sizes(part), ", ".join(part.types), role.place) for role, part in facts.roles],
            right=(1, 2, 3),
        ),
        table(
            ("Type", "Tensors", "Weights", "Size", "Bits a weight"),
            [(name, *_sizes(part), _bits(part)) for name, part in (*facts.types, ("all", whole))],
            right=(1, 2, 3, 4),
        ),
        _memory(facts),
    ]
    if listed:
        parts.append(_tensors(listed))
    if damage is not None:
        parts.append(
            "".join(f"damaged: {line}\n" for line in damage) or "All weights are finite; nothing is missing.\n"
        )
    return "\n".join(parts)


def _dimensions(c: ModelConfig) -> str:
    recurrent = c.mixers.count(Mixer.GDN)
    rows = [
        ("Layers", f"{c.L}: {recurrent} recurrent, {c.L - recurrent} attention{', and a draft head' if c.mtp else ''}"),
        ("Width", f"{c.H} in {c.S} streams, hyper-connections of rank {c.r}"),
        ("Vocabulary", f"{c.V}"),
        (
            "Context",
            f"{c.context} tokens" + (f", stretched {c.rope.scale:g} times (YaRN)" if c.rope.scale != 1 else ""),
        ),
        ("Cache", f"{shown_bytes(round(token_bytes(c)))} a token, keys and values in {c.qsa.kv}"),
        ("Experts", f"{c.moe.E} a layer, {c.moe.topk} used for a token, width {c.moe.I}; shared one of {c.moe.shared}"),
        ("Recurrent", f"{c.gdn.nk} key and {c.gdn.nv} value heads of {c.gdn.d}"),
        ("Attention", f"{c.qsa.nh} query and {c.qsa.nkv} key heads of {c.qsa.hd}"),
        ("Indexer", f"{c.qsa.ih} heads of {c.qsa.id}; picks {c.qsa.budget} tokens in blocks of {c.qsa.ratio}"),
    ]
    if c.ple:
        rows.append(("n-grams", f"up to {c.ple.n} tokens, {c.ple.rows_per_token} rows of {c.ple.width} a token"))
    return "".join(f"{name:<12}{text}\n" for name, text in rows)


def _sizes(part: Part) -> tuple[str, str, str]:
    return str(part.tensors), _count(part.weights), shown_bytes(part.nbytes)


def _count(weights: int) -> str:
    """A number of weights with three digits or so."""
    for unit, name in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if weights >= unit:
            return f"{weights / unit:.1f}{name}"
    return str(weights)


def _bits(part: Part) -> str:
    return f"{8 * part.nbytes / part.weights:.2f}" if part.weights else "-"


def _memory(facts: Report) -> str:
    found = ram.measure()
    verdict = "it fits" if facts.needed <= found.available else "it does not fit"
    widened = f"No kernel reads {', '.join(facts.widened)}: such matrices become float32.\n" if facts.widened else ""
    return (
        f"Weights stay in RAM as the file stores them: needs {shown_bytes(facts.needed)}, "
        f"{shown_bytes(found.available)} available; {verdict}.\n{widened}"
    )


def _tensors(directory: TensorDirectory) -> str:
    several = len(directory.files) > 1
    return table(
        ("Tensor", "Shape", "Type", "Bytes", *(["File"] if several else [])),
        [
            (info.name, " x ".join(map(str, info.shape)), info.type.name, str(info.nbytes), info.path.name)[
                : 4 + several
            ]
            for info in directory.tensors.values()
        ],
        right=(3,),
    )
