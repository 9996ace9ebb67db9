"""`[[model]]` tables: case Q01 and the order of sources."""

from pathlib import Path

import pytest

from strata.cli.main import main
from strata.config import resolve
from strata.config.models import OWN, SHARED
from strata.config.settings import SETTINGS
from strata.errors import ConfigError

EMPTY: dict[str, str] = {"XDG_CONFIG_HOME": "/nowhere"}

TWO = """
context = 4096
kv = "q8"
[[model]]
file = "m/big.gguf"
aliases = ["gpt-*", "large"]
idle = 300
context = 8192
[[model]]
name = "small"
file = "pebble"
preload = true
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_wins_over_the_file_and_environment_and_flags_over_both(tmp_path) -> None:
    config = write(tmp_path / "c.toml", TWO)
    resolved = resolve({"threads": 2}, config=config, environment=EMPTY | {"STRATA_KV": "f16"})
    big, small = resolved.models
    assert (big.table.name, big.table.aliases, big.table.preload) == ("big", ("gpt-*", "large"), False)
    assert (small.table.name, small.table.aliases, small.table.preload) == ("small", (), True)
    assert big.settings.model == str(tmp_path / "m" / "big.gguf")
    assert (big.settings.context, small.settings.context) == (8192, 4096)
    assert (big.settings.idle, small.settings.idle) == (300, None)
    assert big.settings.kv == small.settings.kv == "f16"
    assert big.settings.threads == small.settings.threads == 2
    assert {name: str(origin) for name, origin in big.origins.items()} == {
        "threads": "flag --threads",
        "context": f"file {config} [[model]] 1",
        "kv": "environment STRATA_KV",
        "idle": f"file {config} [[model]] 1",
    }
    assert str(small.origins["context"]) == f"file {config}"
    assert resolved.settings.model == big.settings.model  # what a command that runs one model takes
    assert str(resolved.origins["model"]) == f"file {config} [[model]] 1"
    everything = resolve({"context": 100}, config=config, environment=EMPTY)
    assert [model.settings.context for model in everything.models] == [100, 100]


def test_a_model_that_is_named_elsewhere_stands_alone(tmp_path) -> None:
    config = write(tmp_path / "c.toml", TWO)
    for flags, environment in (({"model": "x.gguf"}, EMPTY), ({}, EMPTY | {"STRATA_MODEL": "x.gguf"})):
        resolved = resolve(flags, config=config, environment=environment)
        assert resolved.models == ()
        assert resolved.settings.model == "x.gguf"
        assert resolved.settings.context == 4096


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[model]]\nfiel = "a"', "[[model]] number 1: unknown key 'fiel'; did you mean file?"),
        (
            '[[model]]\nfile = "a"\n[[model]]\nfile = "b"\nidel = 3',
            "[[model]] number 2: unknown key 'idel'; did you mean i",
        ),
        ('[[model]]\nfile = "a"\nport = 1', "port is no setting of one model; it belongs at the top of the file"),
        ('[[model]]\nfile = "a"\nidle = "1"', "idle must be a finite number of at least 0, not '1'"),
        ('[[model]]\nfile = "a"\naliases = "b"', "aliases must be a list of texts"),
        ('[[model]]\nfile = "a"\naliases = [""]', "aliases must be a list of texts"),
        ('[[model]]\nname = "a"', "[[model]] number 1 has no file"),
        ('[[model]]\nfile = "a"\n[[model]]\nfile = "a"', "two models are called 'a'"),
        ('[[model]]\nfile = "a"\naliases = ["B"]\n[[model]]\nfile = "b.gguf"', "two models are called 'b'"),
        ('[model]\nfile = "a"', "write [[model]] with two brackets"),
        ("model = []", "model must be a text, or [[model]] tables"),
        ('[[models]]\nfile = "a"', "unknown key 'models'; did you mean model?"),
        ('[models]\nfile = "a"', "unknown section 'models'; did you mean [[model]]?"),
        ("[server]\nport = 1", "unknown section 'server'; port belongs at the top of the file"),
        ("seed = 1\nport = 1\nport = 2", ": port; a key may come only once"),
        ('model = "a"\n[[model]]\nfile = "a"', "is not valid TOML"),
        ('api_key = "secret\n', "is not valid TOML"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(tmp_path, text, message) -> None:  # case Q01
    with pytest.raises(ConfigError) as caught:
        resolve(config=write(tmp_path / "c.toml", text), environment=EMPTY)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_keys_of_a_table_have_one_meaning() -> None:
    assert set(SHARED) <= set(SETTINGS)
    assert len(set(SHARED)) == len(SHARED)
    assert not set(OWN) & set(SETTINGS) - {"name"}


def test_config_shows_each_models_settings_and_where_they_come_from(tmp_path, capsys, monkeypatch) -> None:
    import json

    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    config = str(write(tmp_path / "c.toml", TWO))
    assert main(["config", "--config", config, "--threads", "3"]) == 0
    text = capsys.readouterr().out
    for line in (
        ("small: context", "4096", f"file {config}\n"),
        ("big: context", "8192", f"file {config} [[model]] 1"),
        ("big: threads", "3", "flag --threads"),
        ("small: preload", "True", f"file {config} [[model]] 2"),
    ):
        assert any(all(part in row + "\n" for part in line) for row in text.splitlines()), line
    assert main(["config", "--config", config, "--json"]) == 0
    big, small = json.loads(capsys.readouterr().out)["models"]
    assert big["aliases"]["value"] == ["gpt-*", "large"]
    assert small["context"] == {"value": 4096, "origin": {"source": "file", "name": config}}
