"""The file of what was measured: one for a machine, at `strata.config.calibration_file`.

JSON, for people to read: `strata_calibration` is the number of its form, `checksum` the BLAKE2b of `record` as JSON
without spaces and with sorted keys. It is written aside, made durable, and renamed: after a crash there is the old one
or the new one, never a mix (case Q06). One that is torn, damaged, of another machine or of another version of Strata
is not used, and whoever would have used it says why.
"""

import contextlib
import json
import logging
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

from strata.config import calibration_file
from strata.errors import ConfigError
from strata.loading.calibration.errors import CalibrationError
from strata.loading.calibration.machine import Machine, here
from strata.loading.calibration.record import Record
from strata.version import __version__

FORM = 1
LARGEST = 4 << 20
"""Bytes of a file; some hundred values take a tenth of a megabyte."""

AGAIN = "`strata calibrate` measures again"

log = logging.getLogger("strata.loading")
_said: set[str] = set()


@dataclass(frozen=True, slots=True)
class Known:
    """What there is.

    Attributes:
        record: of this machine and version; None if there is none that can be used.
        why: why the file that is there is not used; empty if it is, or if there is none.
        path: of the file, whether or not it is there; None where no folder is known.
    """

    record: Record | None = None
    why: str = ""
    path: Path | None = None


def known(path: Path | None = None, machine: Machine | None = None) -> Known:
    """What was measured here, if it can be used.

    Args:
        path: of the file; None for the usual place.
        machine: for which it must be; None for this one.
    """
    try:
        path = calibration_file() if path is None else path
        data = _read(path)
        if data is None:
            return Known(path=path)
        return Known(_used(data, machine), path=path)
    except ConfigError as error:
        return Known(why=str(error))
    except CalibrationError as error:
        return Known(why=f"what was measured earlier ({path}) is not used: {error}", path=path)


def warned(path: Path | None = None) -> Record | None:
    """The record of this machine; a warning in the log says once why one that is there is not used."""
    found = known(path)
    if found.why and found.why not in _said:
        _said.add(found.why)
        log.warning("%s", found.why)
    return found.record


def save(record: Record, path: Path | None = None) -> Path:
    """Write the file, or leave the one that is there as it is.

    Raises:
        CalibrationError: it cannot be written.
        ConfigError: no folder is known.
    """
    path = calibration_file() if path is None else path
    aside = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as out:
            out.write(encoded(record))
            out.flush()
            os.fsync(out.fileno())
        aside.replace(path)
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)  # makes the renaming durable
        finally:
            os.close(handle)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise CalibrationError(f"what was measured cannot be kept in {path}: {error.strerror or error}") from error
    return path


def encoded(record: Record) -> bytes:
    """The file's bytes."""
    body = record.as_json()
    head = {"strata_calibration": FORM, "checksum": _checksum(body), "record": body}
    return json.dumps(head, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def decoded(data: bytes) -> Record:
    """The record in a file.

    Raises:
        CalibrationError: it is none, or damaged.
    """
    try:
        head = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CalibrationError(f"it is no JSON and may be cut off; {AGAIN}") from error
    form = head.get("strata_calibration") if isinstance(head, dict) else None
    if type(form) is not int:
        raise CalibrationError(f"it is no calibration of strata; {AGAIN}")
    if form != FORM:
        raise CalibrationError(f"its form is {form}, and this version reads {FORM}; {AGAIN}")
    if not isinstance(head.get("record"), dict) or head.get("checksum") != _checksum(head["record"]):
        raise CalibrationError(f"its checksum does not fit its contents; it is damaged; {AGAIN}")
    try:
        return Record.from_json(head["record"])
    except CalibrationError as error:
        raise CalibrationError(f"{error}; {AGAIN}") from error


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CalibrationError(f"it cannot be read: {error.strerror or error}") from error
    if len(data) > LARGEST:
        raise CalibrationError(f"it is larger than {LARGEST} bytes; {AGAIN}")
    return data


def _used(data: bytes, machine: Machine | None) -> Record:
    record = decoded(data)
    if record.strata != __version__:
        raise CalibrationError(f"version {record.strata} measured it, and this is {__version__}; {AGAIN}")
    others = record.machine.differences(here() if machine is None else machine)
    if others:
        raise CalibrationError(f"it is of a machine with {'; '.join(others)}; {AGAIN}")
    return record


def _checksum(body: Any) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)
