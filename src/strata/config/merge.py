"""Settings from defaults, then a config file, then the environment, then flags; later ones win."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata.config.kinds import UnfitError
from strata.config.settings import SETTINGS, Setting, Settings
from strata.errors import ConfigError

CONFIG_VARIABLE = "STRATA_CONFIG"

LARGEST = 1 << 20
"""Bytes of a config file; there are a dozen settings."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from.

    Attributes:
        source: "default", "file", "environment" or "flag".
        name: the file's path, the variable or the flag; empty for a default.
    """

    source: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings in force.

    Attributes:
        settings: the values.
        origins: where each comes from, by name.
        file: the config file that was read, whether or not a value of it won; None if there is none.
        file_origin: who named that file.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    file: Path | None = None
    file_origin: Origin = Origin("default")


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
    in_file = None if path is None else _from_file(path, must_exist=chosen_by.source != "default")
    for source in (in_file or {}, _from_environment(environment), _from_flags(flags)):
        for name, (value, origin) in source.items():
            values[name], origins[name] = value, origin
    return Resolved(Settings(**values), origins, None if in_file is None else path, chosen_by)


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


def _from_file(path: Path, *, must_exist: bool) -> Found | None:
    """What a file says; None if it is not there and need not be."""
    try:
        table = _read(path)
    except FileNotFoundError:
        if not must_exist:
            return None
        raise ConfigError(f"config file {path}: there is no such file") from None
    found: Found = {}
    for name, value in table.items():
        if name not in SETTINGS:
            raise ConfigError(f"config file {path}: unknown key {name!r}{_nearest(name, SETTINGS)}")
        checked = _checked(SETTINGS[name], value, f"config file {path}: {name}")
        found[name] = (_beside(path, checked) if name == "model" else checked, Origin("file", str(path)))
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"config file {path}: is not a regular file")
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ConfigError(f"config file {path}: is larger than {LARGEST} bytes")
        return tomllib.loads(text.decode("utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"config file {path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"config file {path}: is not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config file {path}: is not valid TOML: {error}") from error


def _beside(config: Path, model: str) -> str:
    """A model's path in a file starts at that file's folder; ~ is the home folder; names are left alone."""
    if model.startswith("~"):
        try:
            return str(Path(model).expanduser())
        except RuntimeError:
            raise ConfigError(f"config file {config}: model {model!r}: no such home folder is known") from None
    if re.fullmatch(r"[\w.-]+/[\w.-]+:[\w.-]+", model):  # a pulled model
        return model
    return str(config.parent / model) if "/" in model else model


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
