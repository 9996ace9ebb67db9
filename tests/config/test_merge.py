import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.config import Origin, Settings, resolve
from strata.config.merge import default_config_file
from strata.config.settings import SETTINGS
from strata.engine import Sampling
from strata.errors import ConfigError, RequestError

EMPTY: dict[str, str] = {"XDG_CONFIG_HOME": "/nowhere"}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_said_means_the_defaults() -> None:
    resolved = resolve(environment=EMPTY)
    assert resolved.settings == Settings()
    assert set(resolved.origins.values()) == {Origin("default")}
    assert set(resolved.origins) == set(SETTINGS)


def test_later_sources_win_and_every_value_knows_its_own(tmp_path) -> None:
    config = write(tmp_path / "c.toml", 'seed = 1\ntop_k = 1\ntop_p = 1\nthinking = false\nmodel = "pebble-iq3"\n')
    environment = EMPTY | {"STRATA_TOP_K": "2", "STRATA_TOP_P": "0.5", "HOME": "/x", "STRATAGEM": "not ours"}
    resolved = resolve({"top_p": 0.25, "seed": None}, config=config, environment=environment)
    assert resolved.settings == Settings(seed=1, top_k=2, top_p=0.25, thinking=False, model="pebble-iq3")
    origins = {name: str(origin) for name, origin in resolved.origins.items() if origin.source != "default"}
    assert origins == {
        "seed": f"file {config}",
        "thinking": f"file {config}",
        "model": f"file {config}",
        "top_k": "environment STRATA_TOP_K",
        "top_p": "flag --top-p",
    }
    assert str(resolved.origins["min_p"]) == "default"


def test_a_number_in_a_file_may_be_written_as_an_integer(tmp_path) -> None:
    settings = resolve(config=write(tmp_path / "c.toml", "temperature = 1\n"), environment=EMPTY).settings
    assert settings.temperature == 1.0
    assert isinstance(settings.temperature, float)


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("STRATA_THINKING", "Off", False),
        ("STRATA_THINKING", "1", True),
        ("STRATA_DEBUG", "yes", True),
        ("STRATA_SEED", "-7", -7),
        ("STRATA_TEMPERATURE", "1e-9", 1e-9),
        ("STRATA_MAX_TOKENS", "9223372036854775807", 2**63 - 1),
        ("STRATA_MODEL", "/мод ель/漢字 & 'x'.gguf", "/мод ель/漢字 & 'x'.gguf"),
        ("STRATA_EFFORT", "low", "low"),
        ("STRATA_RAM", "4GB", 4 * 10**9),
        ("STRATA_RAM", "1.5 GiB", 3 << 29),
        ("STRATA_RAM", "300MB", 3 * 10**8),
        ("STRATA_RAM", "12345", 12345),
        ("STRATA_NGRAM", "direct", "direct"),
    ],
)
def test_the_environment_is_read_by_the_kind_of_the_setting(variable, text, value) -> None:
    resolved = resolve(environment=EMPTY | {variable: text})
    name = variable.removeprefix("STRATA_").lower()
    assert getattr(resolved.settings, name) == value
    assert resolved.origins[name] == Origin("environment", variable)


@pytest.mark.parametrize(
    ("variable", "text", "fits"),
    [
        ("STRATA_SEED", "1.5", "an integer"),
        ("STRATA_SEED", "", "an integer"),
        ("STRATA_THREADS", "0", "an integer of at least 1 and at most 1024"),
        ("STRATA_MAX_TOKENS", "-1", "an integer of at least 1"),
        ("STRATA_TOP_K", "-2", "an integer of at least -1"),
        ("STRATA_TEMPERATURE", "nan", "a finite number of at least 0"),
        ("STRATA_TEMPERATURE", "inf", "a finite number of at least 0"),
        ("STRATA_TEMPERATURE", "warm", "a finite number of at least 0"),
        ("STRATA_TOP_P", "1.01", "a number from 0 to 1"),
        ("STRATA_THINKING", "maybe", "true or false"),
        ("STRATA_MODEL", "", "a text"),
        ("STRATA_RAM", "4 gigs", "a number of bytes such as 4GB or 512MiB"),
        ("STRATA_RAM", "-4GB", "a number of bytes such as 4GB or 512MiB"),
        ("STRATA_RAM", "GB", "a number of bytes such as 4GB or 512MiB"),
        ("STRATA_NGRAM", "disk", "ram, mmap or direct"),
    ],
)
def test_a_variable_that_does_not_fit_is_named_with_what_fits(variable, text, fits) -> None:
    with pytest.raises(ConfigError, match=f"^{variable} must be {fits}, not '{text}'; or unset it$"):
        resolve(environment=EMPTY | {variable: text})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('seed = "1"', "seed must be an integer, not '1'"),
        ("seed = true", "seed must be an integer, not True"),
        ("seed = 1.0", "seed must be an integer, not 1.0"),
        ("thinking = 1", "thinking must be true or false, not 1"),
        ("top_p = false", "top_p must be a number from 0 to 1, not False"),
        ("temperature = -0.1", "temperature must be a finite number of at least 0, not -0.1"),
        ("model = 3", "model must be a text, not 3"),
        ("ram = 4.5", "ram must be a number of bytes such as 4GB or 512MiB, not 4.5"),
        ("ram = true", "ram must be a number of bytes such as 4GB or 512MiB, not True"),
        ("kv_cahce = 1", "unknown key 'kv_cahce'; did you mean "),
        ("tempertaure = 1", "unknown key 'tempertaure'; did you mean temperature?"),
        ("[sampling]\nseed = 1", "unknown section 'sampling'; seed belongs at the top of the file"),
        ("seed = 1\nseed = 2", "is not valid TOML"),
        ("seed =", "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_by_name(tmp_path, line, message) -> None:  # case Q01
    config = write(tmp_path / "c.toml", line)
    with pytest.raises(ConfigError) as caught:
        resolve(config=config, environment=EMPTY)
    assert str(caught.value).startswith(f"config file {config}: {message}")


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"^unknown environment variable STRATA_SEEED; did you mean STRATA_SEED\?$"):
        resolve(environment=EMPTY | {"STRATA_SEEED": "1"})


def test_a_file_that_was_named_must_be_there(tmp_path) -> None:
    missing = tmp_path / "missing.toml"
    for named in ({"config": missing}, {"environment": EMPTY | {"STRATA_CONFIG": str(missing)}}):
        with pytest.raises(ConfigError, match=f"^config file {missing}: there is no such file$"):
            resolve(**({"environment": EMPTY} | named))
    with pytest.raises(ConfigError, match=r"^STRATA_CONFIG is empty; unset it"):
        resolve(environment=EMPTY | {"STRATA_CONFIG": ""})
    for strange in (tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="is not a regular file"):
            resolve(config=strange, environment=EMPTY)
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match="is larger than 1048576 bytes"):
        resolve(config=large, environment=EMPTY)


def test_a_file_must_be_utf8(tmp_path) -> None:
    config = tmp_path / "c.toml"
    config.write_bytes(b'model = "\xff"')
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 9\)$"):
        resolve(config=config, environment=EMPTY)
    config.write_text("\ufeffseed = 5", encoding="utf-8")
    assert resolve(config=config, environment=EMPTY).settings.seed == 5


def test_the_default_file_is_where_the_xdg_rules_say(tmp_path) -> None:
    config = write(tmp_path / "strata" / "config.toml", "seed = 5")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert resolve(environment=environment).settings.seed == 5
    other = write(tmp_path / "other.toml", "top_k = 5")
    assert resolve(environment=environment | {"STRATA_CONFIG": str(other)}).settings == Settings(top_k=5)
    assert resolve(config=config, environment={"STRATA_CONFIG": str(other)}).settings == Settings(seed=5)
    for unset in ({}, {"XDG_CONFIG_HOME": "relative"}):
        assert default_config_file(unset) == Path.home() / ".config" / "strata" / "config.toml"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("pebble", "pebble"), ("a.gguf", "a.gguf"), ("../m/a.gguf", "{folder}/../m/a.gguf"), ("/m/a.gguf", "/m/a.gguf")],
)
def test_a_models_path_in_a_file_starts_at_the_file(tmp_path, written, meant) -> None:
    config = write(tmp_path / "c.toml", f'model = "{written}"')
    assert resolve(config=config, environment=EMPTY).settings.model == meant.format(folder=tmp_path)


def test_a_models_path_in_a_file_may_start_at_home(tmp_path) -> None:
    config = write(tmp_path / "c.toml", 'model = "~/a.gguf"')
    assert resolve(config=config, environment=EMPTY).settings.model == str(Path.home() / "a.gguf")
    config = write(tmp_path / "d.toml", 'model = "~nobody-of-that-name/a.gguf"')
    with pytest.raises(ConfigError, match="no such home folder is known"):
        resolve(config=config, environment=EMPTY)


@pytest.mark.parametrize("name", [
    "temperature", "top_k", "top_p", "min_p", "seed", "typical_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "penalty_window",
])  # fmt: skip
@given(
    value=st.one_of(
        st.floats(),
        st.floats(-2.5, 2.5),
        st.floats(0, 0.02),
        st.floats(99, 101),
        st.integers(-5, 5),
        st.booleans(),
        st.sampled_from([math.inf, 10**400, "1", 1.0]),
    )
)
def test_settings_and_engine_refuse_the_same_sampling_values(name, value) -> None:
    try:
        Sampling(**{name: value})
        fits = True
    except RequestError:
        fits = False
    if fits:
        assert getattr(resolve({name: value}, environment=EMPTY).settings, name) == value
    else:
        with pytest.raises(ConfigError, match=f"^--{name.replace('_', '-')} must be "):
            resolve({name: value}, environment=EMPTY)


def test_more_threads_than_any_machine_starts_are_refused() -> None:
    message = "threads must be an integer of at least 1 and at most 1024, not "
    for threads in (1025, 1 << 64):
        with pytest.raises(ConfigError, match=message):
            resolve({"threads": threads}, environment=EMPTY)
    assert resolve({"threads": 1024}, environment=EMPTY).settings.threads == 1024
