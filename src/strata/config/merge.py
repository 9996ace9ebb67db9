"""Settings from defaults, then a config file, then the environment, then flags; later ones win."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strata.config.kinds import UnfitError
from strata.config.models import SHARED, ModelSettings, ModelTable, beside, read_tables
from strata.config.origin import Origin
from strata.config.settings import SETTINGS, Setting, Settings
from strata.errors import ConfigError

CONFIG_VARIABLE = "STRATA_CONFIG"

LARGEST = 1 << 20
"""Bytes of a config file; there are a dozen settings."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings in force.

    Attributes:
        settings: the values.
        origins: where each comes from, by name.
        file: the config file that was read, whether or not a value of it won; None if there is none.
        file_origin: who named that file.
        models: the models of the file's tables; none where a flag or the environment names a model.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    file: Path | None = None
    file_origin: Origin = field(default_factory=lambda: Origin("default"))
    models: tuple[ModelSettings, ...] = ()


def resolve(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Resolved:
    """Merge all sources.

    Args:
        flags: values given on the command line by setting name; None values count as not given.
        config: config file that must exist; None takes STRATA_CONFIG, else `default_config_file` if it is there.
        environment: variables; None takes those of the process.

    Raises:
        ConfigError: a file that cannot be read, an unknown key or STRATA_ variable, or a value that does not fit;
            names the source, what was found and what fits.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, Origin("default"))
    path, chosen_by = _config_file(config, environment)
    read = None if path is None else _from_file(path, must_exist=chosen_by.source != "default")
    in_file, tables = read or ({}, ())
    stronger = {**_from_environment(environment), **_from_flags(flags)}
    for name, (value, origin) in {**in_file, **stronger}.items():
        values[name], origins[name] = value, origin
    models: tuple[ModelSettings, ...] = ()
    if tables and "model" not in stronger:
        models = tuple(_of_model(table, number, in_file, stronger, path) for number, table in enumerate(tables, 1))
        values["model"], origins["model"] = tables[0].file, Origin("file", f"{path} [[model]] 1")
    return Resolved(Settings(**values), origins, None if read is None else path, chosen_by, models)


def _of_model(table: ModelTable, number: int, in_file: "Found", stronger: "Found", path: Path | None) -> ModelSettings:
    """What holds for one model: its table wins over the rest of the file, and environment and flags over both."""
    origin = Origin("file", f"{path} [[model]] {number}")
    found = {**in_file, **{name: (value, origin) for name, value in table.values.items()}, **stronger}
    settings = Settings(
        **{name: value for name, (value, _) in found.items() if name != "model"} | {"model": table.file}
    )
    return ModelSettings(table, settings, origin, {name: found[name][1] for name in SHARED if name in found})


def default_config_file(environment: Mapping[str, str]) -> Path | None:
    """$XDG_CONFIG_HOME/strata/config.toml, where XDG_CONFIG_HOME defaults to ~/.config; None without a home."""
    home = environment.get("XDG_CONFIG_HOME", "")
    if Path(home).is_absolute():  # the XDG rules: a relative path there counts as not set
        return Path(home, "strata", "config.toml")
    try:
        return Path.home() / ".config" / "strata" / "config.toml"
    except RuntimeError:  # a container's user may have no entry and no HOME
        return None


def models_folder(settings: Settings | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """Where pulled models are: as set, else $XDG_DATA_HOME/strata/models, where XDG_DATA_HOME is ~/.local/share.

    Args:
        settings: those in force; None for none but those of files and environment.
        environment: instead of the process's own.

    Raises:
        ConfigError: nothing is set, and no home folder is known.
    """
    environment = os.environ if environment is None else environment
    given = (resolve(environment=environment).settings if settings is None else settings).models_folder
    try:
        if given is not None:
            return Path(given).expanduser()
        home = environment.get("XDG_DATA_HOME", "")
        return Path(home if Path(home).is_absolute() else Path.home() / ".local" / "share", "strata", "models")
    except RuntimeError:
        raise ConfigError("no home folder is known; set models_folder (--models-folder)") from None


def calibration_file(environment: Mapping[str, str] | None = None) -> Path:
    """Where `strata calibrate` keeps what it measured: $XDG_CACHE_HOME/strata/calibration.json, or below ~/.cache.

    Args:
        environment: instead of the process's own.

    Raises:
        ConfigError: no home folder is known.
    """
    home = (os.environ if environment is None else environment).get("XDG_CACHE_HOME", "")
    try:
        return Path(home if Path(home).is_absolute() else Path.home() / ".cache", "strata", "calibration.json")
    except RuntimeError:
        raise ConfigError("no home folder is known for measurements; set XDG_CACHE_HOME") from None


def profiles_folder(settings: Settings, environment: Mapping[str, str] | None = None) -> Path | None:
    """Where it is kept which experts were used most: $XDG_CACHE_HOME/strata/experts, where that is ~/.cache.

    Args:
        settings: those in force.
        environment: instead of the process's own.

    Returns:
        None where it is not to be kept, or no home folder is known.
    """
    environment = os.environ if environment is None else environment
    if not settings.expert_profile:
        return None
    home = environment.get("XDG_CACHE_HOME", "")
    try:
        return Path(home if Path(home).is_absolute() else Path.home() / ".cache", "strata", "experts")
    except RuntimeError:
        return None


Found = dict[str, tuple[Any, Origin]]


def _config_file(given: Path | None, environment: Mapping[str, str]) -> tuple[Path | None, Origin]:
    """Which file to read, and who says so."""
    if given is not None:
        return given, Origin("flag", "--config")
    if CONFIG_VARIABLE not in environment:
        return default_config_file(environment), Origin("default")
    if not environment[CONFIG_VARIABLE]:
        raise ConfigError(f"{CONFIG_VARIABLE} is empty; unset it or name a file")
    return Path(environment[CONFIG_VARIABLE]), Origin("environment", CONFIG_VARIABLE)


def _from_file(path: Path, *, must_exist: bool) -> tuple[Found, tuple[ModelTable, ...]] | None:
    """What a file says: settings and models; None if it is not there and need not be."""
    try:
        table = _read(path)
    except FileNotFoundError:
        if not must_exist:
            return None
        raise ConfigError(f"config file {path}: there is no such file") from None
    found: Found = {}
    tables: tuple[ModelTable, ...] = ()
    for name, value in table.items():
        if name == "model" and isinstance(value, list | dict):
            tables = read_tables(value, path)
            continue
        if name not in SETTINGS and isinstance(value, dict):
            raise ConfigError(f"config file {path}: {_no_section(name, value)}")
        if name not in SETTINGS:
            raise ConfigError(f"config file {path}: unknown key {name!r}{_nearest(name, SETTINGS)}")
        checked = _checked(SETTINGS[name], value, f"config file {path}: {name}")
        found[name] = (beside(path, checked) if name == "model" else checked, Origin("file", str(path)))
    return found, tables


def _no_section(name: str, inside: Mapping[str, Any]) -> str:
    if name == "models":
        return "unknown section 'models'; did you mean [[model]]?"
    known = next((key for key in inside if key in SETTINGS), None)
    place = f"{known} belongs" if known else "settings belong"
    return f"unknown section {name!r}; {place} at the top of the file, and only models have tables: [[model]]"


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"config file {path}: is not a regular file")
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ConfigError(f"config file {path}: is larger than {LARGEST} bytes")
        return tomllib.loads(text.decode("utf-8-sig"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"config file {path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"config file {path}: is not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config file {path}: is not valid TOML: {error}{_line(text, error)}") from error


def _line(text: bytes, error: tomllib.TOMLDecodeError) -> str:
    """What stands in the line that an error is about, up to the value, which may be a key."""
    lines = text.decode("utf-8-sig").rstrip().splitlines()
    place = re.search(r"at line (\d+)", str(error))
    number = min(len(lines), int(place[1]) if place else len(lines))
    if number < 1:
        return ""
    key = lines[number - 1].partition("=")[0].strip()
    twice = "; a key may come only once" if "overwrite" in str(error) else ""
    return f": {key[:80]}{twice}" if key else ""


def _from_environment(environment: Mapping[str, str]) -> Found:
    known = {setting.variable: setting for setting in SETTINGS.values()}
    found: Found = {}
    for variable in sorted(environment):
        if not variable.startswith("STRATA_") or variable == CONFIG_VARIABLE:
            continue
        if variable not in known:
            raise ConfigError(f"unknown environment variable {variable}{_nearest(variable, [*known, CONFIG_VARIABLE])}")
        setting, text = known[variable], environment[variable]
        try:
            found[setting.name] = (setting.kind.parse(text), Origin("environment", variable))
        except UnfitError as error:
            raise ConfigError(f"{variable} must be {error}, not {text!r}; or unset it") from None
    return found


def _from_flags(flags: Mapping[str, Any] | None) -> Found:
    return {
        name: (_checked(SETTINGS[name], value, SETTINGS[name].flag), Origin("flag", SETTINGS[name].flag))
        for name, value in (flags or {}).items()
        if value is not None
    }


def _checked(setting: Setting, value: Any, where: str) -> Any:
    try:
        return setting.kind.check(value)
    except UnfitError as error:
        raise ConfigError(f"{where} must be {error}, not {value!r}") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    """The closest known name as a question."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"; did you mean {close[0]}?" if close else ""
