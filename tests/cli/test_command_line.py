"""Parsing, settings, help, completion and documents."""

import dataclasses
import json
import re
import subprocess
import typing
from pathlib import Path

import pytest

from strata.cli import reference
from strata.cli.app import bench, chat, completion, config, doctor, inspect, run, serve
from strata.cli.flags import GlobalFlags, PullFlags, SamplingFlags, ServeFlags, ThinkingFlags
from strata.cli.main import main
from strata.cli.output import printable
from strata.cli.table import table
from strata.config import Settings
from strata.config.kinds import Bytes, Tokens
from strata.config.settings import SETTINGS


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["chta"], 'unknown command "chta". Did you mean "chat"?'),
        (["chat", "a", "b"], "unexpected argument 'b'"),
        (["chat", "a", "--temprature", "1"], "unknown option: --temprature. Did you mean --temperature?"),
        (["--mdoel", "x", "chat", "a"], "unknown option: --mdoel; did you mean --model?"),
        (["chat", "--mdoel", "x"], "unknown option: --mdoel; did you mean --model?"),
        (["chat", "a", "--temperature", "warm"], 'unable to convert "warm" into float'),
        (["chat", "a", "--temperature", "-1"], "--temperature must be a finite number of at least 0, not -1.0"),
        (["chat", "a", "--max-tokens", "0"], "--max-tokens must be an integer of at least 1, not 0"),
        (["chat", "a", "--seed", "1", "--seed", "2"], "--seed specified multiple times"),
        (["chat", "--model"], "--model requires an argument"),
        (["config", "--config", "/nowhere/c.toml"], "config file /nowhere/c.toml: there is no such file"),
        (["completion", "tcsh"], 'Choose from: "bash", "zsh", "fish"'),
    ],
    ids=" ".join,
)
def test_a_line_that_cannot_be_right_is_refused_with_the_nearest_name(line, said, capsys) -> None:  # case Q01
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("strata: error: ")
    assert said in err


def test_an_unknown_variable_is_a_usage_error(capsys, monkeypatch) -> None:
    monkeypatch.setenv("STRATA_MODLE", "x")
    assert main(["config"]) == 2
    assert capsys.readouterr().err.endswith("unknown environment variable STRATA_MODLE; did you mean STRATA_MODEL?\n")


@pytest.mark.parametrize("before", [True, False])
def test_config_shows_every_value_with_its_origin(capsys, monkeypatch, tmp_path, before) -> None:
    file = tmp_path / "c.toml"
    file.write_text("top_k = 5\n", encoding="utf-8")
    monkeypatch.setenv("STRATA_SEED", "9")
    flags = ["--threads", "2", "--config", str(file)]
    assert main([*flags, "config"] if before else ["config", *flags]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert rows.keys() == {"Setting", "config", *(field.name for field in dataclasses.fields(Settings))}
    assert re.fullmatch(rf"config +{file} +flag --config", rows["config"])
    assert re.fullmatch(r"threads +2 +flag --threads", rows["threads"])
    assert re.fullmatch(r"seed +9 +environment STRATA_SEED", rows["seed"])
    assert re.fullmatch(rf"top_k +5 +file {file}", rows["top_k"])
    assert re.fullmatch(r"effort +the model's own default +default", rows["effort"])
    assert main(["--json", *flags, "config"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["top_k"] == {"value": 5, "origin": {"source": "file", "name": str(file)}}
    assert values["effort"] == {"value": None, "origin": {"source": "default", "name": ""}}
    assert values["config"] == {"value": str(file), "origin": {"source": "flag", "name": "--config"}}


def test_config_names_the_file_it_read_even_if_nothing_in_it_counts(capsys, monkeypatch, tmp_path) -> None:
    def last_line() -> str:
        assert main(["config"]) == 0
        return " ".join(capsys.readouterr().out.splitlines()[-1].split())

    assert last_line() == "config no file default"
    file = tmp_path / "strata" / "config.toml"
    file.parent.mkdir()
    file.touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert last_line() == f"config {file} default"
    monkeypatch.setenv("STRATA_CONFIG", str(file))
    assert last_line() == f"config {file} environment STRATA_CONFIG"


def test_every_setting_has_a_flag_of_its_kind() -> None:
    flags: dict[str, object] = {}
    for group in (GlobalFlags, SamplingFlags, ServeFlags, ThinkingFlags, PullFlags):
        hints = typing.get_type_hints(group)
        flags |= {field.name: hints[field.name] for field in dataclasses.fields(group)}
    settings = typing.get_type_hints(Settings)
    assert flags.keys() - settings.keys() == {"json", "config"}
    for name, kind in settings.items():
        if isinstance(SETTINGS[name].kind, Bytes | Tokens):  # a number with a unit is a text until it is looked at
            kind = str | None  # noqa: PLW2901
        assert flags[name] in {kind, kind | None}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_know_commands_and_options(shell, capsys) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("chat", "inspect", "doctor", "max-tokens", "model", "json"):
        assert word in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("switch", ["--debug", "--json"])
def test_completion_knows_that_a_switch_takes_no_value(switch, capsys) -> None:
    assert main(["completion", "bash"]) == 0
    line = f'COMP_WORDS=(strata {switch} ""); COMP_CWORD=2; _strata; echo "${{COMPREPLY[@]}}"'
    script = capsys.readouterr().out + line
    done = subprocess.run(["bash"], input=script, text=True, check=True, capture_output=True)
    assert done.stdout == "chat run serve pull plan calibrate bench inspect doctor config completion\n"


def test_the_documents_agree_with_the_code() -> None:
    text = Path(__file__).parents[2].joinpath("docs", "cli.md").read_text(encoding="utf-8")
    again = "run: python -m strata.cli.reference docs/cli.md"
    assert reference.settings() in text, again
    words = " ".join(text.split())
    # How a command is laid out is up to cyclopts, what is said of it is not.
    for command in (chat, run, serve, bench, inspect, doctor, config, completion):
        assert f"### strata {command.__name__}" in text
        description = (command.__doc__ or "").split("Args:")[0]
        assert " ".join(description.split()) in words, again
    for group in (GlobalFlags, SamplingFlags, ServeFlags, ThinkingFlags, PullFlags):
        for field in dataclasses.fields(group):
            assert f"--{field.name.replace('_', '-')}" in text, again
    assert all(setting.meaning in words for setting in SETTINGS.values()), again
    assert reference.renew(reference.renew(text)) == reference.renew(text)
    assert "\nstrata chat [OPTIONS] [ARGS]\n" in text, again


def test_control_characters_do_not_reach_a_terminal(capsys, monkeypatch) -> None:
    assert printable("a\tb\n\x1b[2J\r\x07\x9b漢🙂") == "a\tb\n\\x1b[2J\\x0d\\x07\\x9b漢🙂"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["inspect", "\x1b[31m.gguf"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_tables_are_aligned_by_width_on_screen() -> None:
    assert table(("a", "b"), [("漢字", "1"), ("x", "22")], right=(1,)) == "a      b\n漢字   1\nx     22\n"


def test_config_shows_no_key(capsys, monkeypatch) -> None:
    monkeypatch.setenv("STRATA_API_KEY", "secret")
    for arguments in (["config"], ["config", "--json"]):
        assert main(arguments) == 0
        shown = capsys.readouterr().out
        assert "secret" not in shown
        assert "(set)" in shown
