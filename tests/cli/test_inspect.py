import json
from pathlib import Path

import numpy as np
import pytest

from strata.cli.inspection.roles import OTHER, role_of
from strata.cli.main import main
from support import tiny as oracle
from support.tiny_file import tiny_metadata, tiny_tensors, write_tiny


def test_the_report_adds_up(tiny, capsys) -> None:
    assert main(["inspect", str(tiny)]) == 0
    text, notes = capsys.readouterr()
    assert notes == ""
    assert text.startswith(f"tiny\n  {tiny}\n")
    for line in ("4: 3 recurrent, 1 attention", "8 a layer, 2 used for a token, width 64; shared one of 64", "it fits"):
        assert line in text
    assert main(["inspect", "--json", "--tensors", str(tiny)]) == 0
    facts = json.loads(capsys.readouterr().out)
    tensors = tiny_tensors()
    assert facts["whole"] == {
        "tensors": len(tensors),
        "weights": sum(value.size for value in tensors.values()),
        "nbytes": sum(value.nbytes for value in tensors.values()),
        "types": ["F32"],
    }
    for parts in (facts["roles"], facts["types"]):
        for key in ("tensors", "weights", "nbytes"):
            assert sum(part[key] for part in parts) == facts["whole"][key]
    roles = {part["role"]: part for part in facts["roles"]}
    assert "other" not in roles
    assert roles["routed experts"]["weights"] == 4 * 8 * 3 * 64 * 128
    assert "VRAM slots" in roles["routed experts"]["place"]
    assert roles["n-gram table"]["place"].startswith("SSD")
    assert facts["needed_bytes"] == 4 * sum(v.size for name, v in tensors.items() if "token_embd" not in name)
    assert (facts["unread_keys"], facts["unused_tensors"], facts["config"]["H"]) == ([], [], 128)
    assert {info["name"]: tuple(info["shape"]) for info in facts["tensors"]} == {
        name: value.shape for name, value in tensors.items()
    }


def test_the_list_of_tensors_is_for_people_too(tiny, capsys) -> None:
    assert main(["inspect", "--tensors", str(tiny)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for name, value in tiny_tensors().items():
        shape = [part for size in value.shape for part in (str(size), "x")][:-1]
        assert [name, *shape, "F32", str(value.nbytes)] in rows


def test_what_is_unknown_or_unused_is_a_warning(tmp_path, capsys) -> None:  # case M06
    path, *_ = write_tiny(
        tmp_path / "m.gguf",
        tiny_metadata() | {"qwen4exp.novelty": 3, "other.key": 1},
        tiny_tensors() | {"blk.0.extra.weight": np.zeros((1, 4), np.float32)},
    )
    assert main(["inspect", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "other " in out
    assert "warning: metadata keys that this version does not read: qwen4exp.novelty\n" in err
    assert "warning: tensors that this version does not use: blk.0.extra.weight\n" in err


def test_the_setting_model_is_what_is_inspected_without_a_file(tiny, capsys, monkeypatch) -> None:
    monkeypatch.setenv("STRATA_MODEL", str(tiny))
    assert main(["inspect", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [str(tiny)]


def test_a_check_finds_damage_and_names_the_expert(tiny, tmp_path, capsys) -> None:  # case M15
    assert main(["inspect", "--check", str(tiny)]) == 0
    assert "All weights are finite" in capsys.readouterr().out
    tensors = tiny_tensors()
    name = "blk.2.ffn_up_exps.weight"
    tensors[name] = tensors[name].copy()
    tensors[name][5, 3, 1] = np.inf
    path, *_ = write_tiny(tmp_path / "m.gguf", tensors=tensors)
    assert main(["inspect", "--check", str(path)]) == 1
    assert f"damaged: {name}, expert 5, row 3: 1 blocks" in capsys.readouterr().out
    assert main(["inspect", "--check", "--json", str(path)]) == 1
    assert len(json.loads(capsys.readouterr().out)["damage"]) == 1


def broken(tmp_path: Path, how: str) -> tuple[Path, str]:
    """A broken model, and what the error must say."""
    names = list(tiny_tensors())
    path = tmp_path / "m.gguf"
    if how == "truncated":  # case M01
        write_tiny(path)
        path.write_bytes(path.read_bytes()[:-1])
        return path, "m.gguf"
    if how == "a shard missing":  # case M04
        shards = write_tiny(path, shards=[names[:50], names[50:]])
        shards[1].unlink()
        return shards[0], "00002-of-00002"
    if how == "architecture":  # case M05
        write_tiny(path, tiny_metadata() | {"general.architecture": "llama"})
        return path, "'llama'; supported: 'qwen4exp'"
    tensors = tiny_tensors()  # case M06
    shape = tensors.pop("blk.3.indexer.q_norm.weight").shape
    write_tiny(path, tensors=tensors)
    return path, f"tensor blk.3.indexer.q_norm.weight is missing; expected shape {list(shape)}"


@pytest.mark.parametrize("how", ["truncated", "a shard missing", "architecture", "tensor missing"])
@pytest.mark.parametrize("command", ["inspect", "run"])
def test_a_broken_file_is_one_clear_line(tmp_path, capsys, how, command) -> None:
    path, said = broken(tmp_path, how)
    assert main([command, str(path)] if command == "inspect" else ["--model", str(path), command, "Hi"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("strata: error: ")
    assert said in err


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("per_layer_token_embd.weight", "n-gram table"),
        ("token_embd.weight", "token embedding"),
        ("output.weight", "head"),
        ("output_hc_up.weight", "hyper-connections"),
        ("blk.1.hc_attn_norm.weight", "hyper-connections"),
        ("blk.1.ffn_down_exps.weight", "routed experts"),
        ("blk.1.ffn_gate_up_exps.weight", "routed experts"),
        ("blk.1.ffn_up_exps.scale", "routed experts"),
        ("blk.1.ffn_gate_inp.weight", "routers"),
        ("blk.1.ffn_gate_inp_shexp.weight", "shared experts"),
        ("blk.1.attn_qkv.weight", "recurrent mixers"),
        ("blk.1.attn_gate.weight", "recurrent mixers"),
        ("blk.1.ssm_a", "recurrent mixers"),
        ("blk.1.ssm_dt.bias", "recurrent mixers"),
        ("blk.3.attn_q.weight", "attention"),
        ("blk.3.attn_output.weight", "attention"),
        ("blk.3.indexer.q_norm.weight", "indexers"),
        ("blk.1.ple_key.weight", "n-gram mixing"),
        ("blk.8.nextn.eh_proj.weight", "draft head"),
        ("blk.8.nextn.hc_head_norm.weight", "hyper-connections"),
        ("blk.8.nextn.shared_head_head.weight", "head"),
        ("v.patch_embd.weight", "other"),
    ],
)
def test_names_tell_roles(name, role) -> None:
    assert role_of(name).name == role


def test_every_tensor_of_the_oracle_has_a_role() -> None:
    for settings in oracle.SETTINGS:
        assert all(role_of(name) is not OTHER for name in oracle.tensors(settings))
