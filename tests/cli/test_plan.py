"""`strata plan`, as a person and as a script see it."""

import json
from pathlib import Path

import pytest

from strata.cli.main import main
from strata.cli.session import located
from strata.config import resolve
from strata.gguf import open_model
from strata.hub.catalogue import find_known, known_files
from strata.hub.folder import Folder, Receipt
from strata.lab.synthetic.shapes import Synthetic, metadata, tensors
from strata.loading import gpu
from strata.loading.gpu import Card
from strata.loading.known import known_config, known_sizes
from strata.model import load_config
from strata.pebble import path as pebble_file
from support.hollow import hollow

FLASH = "qwen3.8-flash-next"
ONE = "--conversations", "1"


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(gpu, "find", lambda _: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def told(capsys, *tokens: str, code: int = 0) -> str:
    assert main(["plan", *tokens]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 or captured.out else captured.err


def test_before_any_download(capsys) -> None:
    text = told(capsys, f"{FLASH}:IQ3_XXS", "--vram", "12GB", "--ram", "64GB", "--context", "32K", *ONE)
    assert text.startswith("Qwen3.8-Flash-Next IQ3_XXS on a GPU with 12.0 GB free and 64.0 GB of RAM: it fits.\n")
    assert "A download of 75.8 GB; sizes as stated by others (ISTA-DASLab GSQ-RCO)" in text
    assert "\n  dense weights          4.00 GB  ████████" in text
    assert "\n  experts              43.0 GB  " in text
    assert "\nSpeed, estimated and not measured\n  writing   about " in text
    assert "assumed: RTX 5070: 672 GB/s and 62 TFLOPS, link 25 GB/s" in " ".join(text.split())
    assert "strata pull OWNER/NAME:IQ3_XXS" in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_all_files_of_a_model_side_by_side(capsys) -> None:
    text = told(capsys, FLASH, "--vram", "12GB", "--ram", "32GB")
    lines = text.splitlines()
    assert lines[2].split()[:3] == ["Quant", "Download", "Fits"]
    quants = [file.quant for file in find_known(FLASH)]
    assert [line.split()[0] for line in lines[3 : 3 + len(quants)]] == quants
    text = told(capsys, FLASH, "--vram", "5GB", "--ram", "32GB", code=1)
    assert text.count(" of VRAM") == len(quants)


def test_what_does_not_fit_is_refused_with_numbers_and_flags(capsys) -> None:
    error = told(capsys, f"{FLASH}:IQ3_XXS", "--vram", "8GB", "--ram", "64GB", "--context", "128K", *ONE, code=1)
    assert "10.4 GB of VRAM are needed, 8.00 GB are there: 4.00 GB for dense weights" in error
    assert "what would help: --context 46K, or the CPU alone (--device cpu), or a smaller file, or 10.4 GB" in error
    assert told(capsys, f"{FLASH}:IQ3_XXS", "--vram", "8GB", "--ram", "64GB", "--context", "46K", *ONE)
    assert told(capsys, f"{FLASH}:IQ3_XXS", "--vram", "8GB", "--ram", "64GB", "--context", "47K", *ONE, code=1)
    assert "on a machine without a GPU" in told(
        capsys, f"{FLASH}:IQ3_XXS", "--vram", "8GB", "--ram", "64GB", "--context", "40K", "--device", "cpu"
    )


def test_for_machines(capsys) -> None:
    found = json.loads(
        told(capsys, f"{FLASH}:Q2_0", "--vram", "24GiB", "--ram", "64GB", "--gpu", "RTX 3090", "--json", *ONE)
    )
    for account in (found["vram"], found["ram"]):
        assert account["used"] + account["free"] == account["budget"]
        assert sum(part["nbytes"] for part in account["parts"]) == account["used"]
    assert found["vram"]["budget"] == 24 << 30
    assert found["machine"]["rates"]["vram"] == 936
    assert found["machine"]["rates"]["guessed"] == ["link", "cpu", "disk"]
    experts = found["experts"]
    assert experts["total"] == 24576
    assert 0.4 < experts["in_vram"] / 24576 < 0.7, "limits.md, 4.4 has 53% with a short context"
    assert found["estimate"]["best"][0] > 0
    refused = json.loads(told(capsys, f"{FLASH}:Q2_0", "--vram", "4GB", "--ram", "64GB", "--json", code=1))
    assert (refused["fits"], refused["shortage"]["where"]) == (False, "VRAM")
    assert refused["advice"]
    several = json.loads(told(capsys, FLASH, "--vram", "12GB", "--ram", "64GB", "--json"))
    assert len(several["plans"]) == len(find_known(FLASH))


def test_a_file_on_this_machine(capsys) -> None:
    text = told(capsys, "pebble")
    assert text.startswith("Pebble on a machine without a GPU, with ")
    assert "of RAM available" in text
    assert "8 conversations of up to 2K tokens, all that the model can." in text
    assert "- To run it so: `strata serve pebble`." in text
    assert "Speed" not in text, "nothing is known of how fast so small a model is"
    assert told(capsys, str(pebble_file("iq3"))).startswith("Pebble on ")


def test_a_split_set_whose_layers_differ(capsys, tmp_path) -> None:
    """The released shapes, 88 GB in three files of a few kilobytes each: only headers are read."""
    shapes = Synthetic(ngram_rows=20_000_000)
    infos = [(one.name, one.shape, one.type) for one in tensors(shapes)]
    larger = {f"blk.{i}.ffn_{part}_exps.weight": kind for i in (2, 4, 30) for part, kind in
              (("gate", "Q4_K"), ("up", "Q4_K"), ("down", "Q8_0"))}  # fmt: skip
    infos = [(name, shape, larger.get(name, kind)) for name, shape, kind in infos]
    table = [one for one in infos if one[0] == "per_layer_token_embd.weight"]
    others = [one for one in infos if one not in table]
    hollow(tmp_path / "flash.gguf", metadata(shapes), [others[:600], others[600:], table])
    second = str(tmp_path / "flash-00002-of-00003.gguf")
    text = told(capsys, second, "--vram", "24GB", "--ram", "64GB")
    rows = [line.split() for line in text.splitlines() if " MB  " in line and line.startswith("      ")]
    assert [row[2:-4] for row in rows] == [["0-1,", "3,", "5-29,", "31-47"], ["2,", "4,", "30"]]
    assert [row[-4] for row in rows] == ["23,040", "1,536"]
    found = json.loads(told(capsys, second, "--vram", "24GB", "--ram", "64GB", "--json"))
    assert [Path(path).name for path in found["files"]] == [f"flash-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    small, large = found["experts"]["classes"]
    assert small["stored"] == 2_176_000, "IQ3_XXS and IQ4_NL, gguf-tensors spec 6.1"
    assert large["stored"] == 2 * 640 * 1440 + 2560 * 680
    assert small["in_vram"] / 23040 == pytest.approx(large["in_vram"] / 1536, rel=0.01)
    assert found["drafts"] is False
    (table_part,) = found["ssd"]
    assert table_part["nbytes"] == pytest.approx(28.8e9, rel=1e-3)


def test_the_card_of_this_machine(capsys, monkeypatch) -> None:
    monkeypatch.setattr(gpu, "find", lambda _: Card(0, "NVIDIA GeForce RTX 3090", 86, 23_500_000_000, 25_400_000_000))
    found = json.loads(told(capsys, f"{FLASH}:IQ2_XS", "--ram", "64GB", "--json"))
    assert (found["machine"]["vram"], found["machine"]["vram_from"]) == (23_500_000_000, "NVIDIA GeForce RTX 3090")
    assert found["machine"]["rates"]["tflops"] == 71


def test_rates_that_are_given(capsys) -> None:
    flags = ("--vram", "12GB", "--ram", "64GB", "--context", "32K")
    slow = json.loads(told(capsys, f"{FLASH}:Q2_0", *flags, "--cpu-rate", "20", "--link-rate", "12", "--json"))
    fast = json.loads(told(capsys, f"{FLASH}:Q2_0", *flags, "--cpu-rate", "80", "--link-rate", "52", "--json"))
    assert fast["estimate"]["best"][0] > 1.5 * slow["estimate"]["best"][0]
    assert fast["machine"]["rates"]["guessed"] == ["vram", "tflops", "disk"]
    assert "given: link 52 GB/s" in " ".join(told(capsys, f"{FLASH}:Q2_0", *flags, "--link-rate", "52").split())


def test_settings_count(capsys, monkeypatch) -> None:
    monkeypatch.setenv("STRATA_CONTEXT", "16K")
    found = json.loads(told(capsys, f"{FLASH}:Q2_0", "--vram", "12GB", "--ram", "64GB", "--drafts", "0", "--json"))
    assert (found["context"], found["drafts"], found["conversations"]) == (16384, False, 8)
    flags = ("--vram", "24GB", "--ram", "64GB", "--conversations", "4", "--headroom", "1GB", "--cache-ram", "4")
    found = json.loads(told(capsys, f"{FLASH}:Q2_0", *flags, "--json"))
    assert found["conversations"] == 4
    parts = {part["name"]: part["nbytes"] for part in found["vram"]["parts"] + found["ram"]["parts"]}
    assert (parts["kept free"], parts["kept conversations"]) == (10**9, 4 << 30)


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ((f"{FLASH}:IQ9",), "the catalogue has no IQ9 of Qwen3.8-Flash-Next; it has Q2_0, IQ2_XS"),
        (("qwen3.8-flash-nxt",), "did you mean qwen3.8-flash-next?"),
        (("a/b:Q2_0",), "a/b:Q2_0 is not here. `strata pull a/b:Q2_0` downloads it"),
        (("none.gguf",), "none.gguf: no such file"),
        ((f"{FLASH}:Q2_0", "--vram", "12 apples"), "a number of bytes such as 4GB or 512MiB"),
        ((f"{FLASH}:Q2_0", "--vram", "12GB", "--gpu", "Voodoo 2"), "the speeds of 'Voodoo 2' are not known"),
        ((f"{FLASH}:Q2_0", "--vram", "12GB", "--cpu-rate", "-1"), "--cpu-rate must be a number above 0"),
        (
            (f"{FLASH}:Q2_0", "--vram", "12GB", "--context", "lots"),
            "--context must be an integer of at least 2 such as",
        ),
        ((f"{FLASH}:Q2_0", "--vram", "12GB", "--kv", "q4"), "kept as bf16, q8 on a GPU, not as q4"),
        ((f"{FLASH}:Q2_0", "--vram", "12GB", "--ram", "64GB", "--context", "1M"), "set --context to at most 256K"),
        ((f"{FLASH}:Q2_0", "--vram", "12GB", "--ram", "64GB", "--disk", "50GB"), "free 16.4 GB there"),
    ],
)
def test_what_is_wrong_is_said(capsys, tokens, why) -> None:
    assert main(["plan", *tokens]) in {1, 2}
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_pulled_model(capsys, tmp_path) -> None:
    folder = Folder(tmp_path / "data/strata/models")
    home = folder.home("maker/Pebble")
    home.mkdir(parents=True)
    content = pebble_file("iq3").read_bytes()
    (home / "pebble-IQ3.gguf").write_bytes(content)
    folder.write(Receipt("maker/Pebble", "IQ3", "0" * 40, ("pebble-IQ3.gguf",), (len(content),), ("",)))
    assert "`strata serve maker/Pebble:IQ3`" in told(capsys, "maker/Pebble:IQ3")
    assert main(["inspect", "maker/Pebble"]) == 0
    for name in ("maker/Pebble:IQ3", "maker/Pebble"):
        assert located(resolve({"model": name}).settings) == str(home / "pebble-IQ3.gguf")
    config = tmp_path / "config.toml"
    config.write_text('model = "maker/Pebble:IQ3"\n')
    assert main(["inspect", "--config", str(config)]) == 0
    assert main(["run", "--model", "maker/Pebble:Q8_0", "ab"]) == 1
    assert "maker/Pebble:Q8_0 is not here; here are maker/Pebble:IQ3" in capsys.readouterr().err


def test_the_catalogue_is_sound() -> None:
    names = [file.name for file in known_files()]
    assert len(set(names)) == len(names)
    for file in known_files():
        assert file.source
        assert 2e9 < file.dense < 8e9, file.name
        config = known_config(file)
        sizes = known_sizes(file, config)
        assert sizes.experts == config.L * config.moe.E
        assert abs(sizes.expert_bytes - file.experts) < 1e-3 * file.experts
        assert sizes.files == file.total


def test_its_dimensions_are_the_released_ones() -> None:
    """Written twice, from the same page: for the catalogue and for the synthetic file."""
    known, other = known_config(find_known(FLASH)[0]), load_config(metadata(Synthetic()))
    for name in ("V", "H", "S", "r", "context", "mixers", "gdn", "qsa", "rope", "moe"):
        assert getattr(known, name) == getattr(other, name)


def test_sizes_of_a_file_are_those_of_its_upload() -> None:
    from strata.loading.sizes import sizes_of
    from strata.model import load_weights
    from strata.ops.gpu.size import weight_bytes

    for variant in ("q8_0", "iq3"):
        directory = open_model(pebble_file(variant))
        config = load_config(directory.metadata)
        sizes = sizes_of(directory, config)
        experts = sum(layer.count * layer.slot for layer in sizes.layers)
        assert sizes.dense + sizes.draft + sizes.table + experts == weight_bytes(load_weights(directory, config))[1]
