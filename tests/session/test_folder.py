"""The folder: whatever happens while it is written, what is found afterwards is whole or is not there."""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch

from strata.errors import StrataError
from strata.session import fileformat, folder, packing
from strata.session.errors import StoredFileError
from strata.session.fileformat import Header, describe
from strata.session.folder import FileState, Folder

PRINT = "a" * 32
SOURCE = Path(__file__).parents[2] / "src"


def part(*symbols: int, size: int = 4):
    tensors = {"s": torch.full((size,), float(sum(symbols)))}
    return Header(PRINT, "checkpoint", "", symbols, len(symbols), 0, marked=False, tensors=describe(tensors)), tensors


@pytest.fixture
def place(tmp_path):
    return tmp_path / "deep" / "store"


def opened(place, fingerprint=PRINT, **kwargs) -> Folder:
    return Folder(place, fingerprint, reserve=kwargs.pop("reserve", 0), **kwargs)


def test_what_was_saved_is_found_again(place) -> None:
    first = opened(place)
    files = [first.save(*part(i, i + 1)) for i in range(5)]
    first.close()
    assert all(file.state is FileState.READY for file in files)
    assert first.pending == 0
    second = opened(place)
    found = {file.header.symbols: file for file in second.scan()}
    assert found.keys() == {(i, i + 1) for i in range(5)}
    assert torch.equal(second.load(found[3, 4])["s"], torch.full((4,), 7.0))
    assert second.bytes == first.bytes == sum(p.stat().st_size for p in place.glob("*.strata"))
    second.close()


def test_only_the_owner_may_read_conversations(place) -> None:
    opening = opened(place)
    file = opening.save(*part(1))
    opening.close()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_folder_belongs_to_one_engine(place) -> None:
    first = opened(place)
    with pytest.raises(StrataError, match="another process stores its conversations there; choose another folder"):
        opened(place)
    first.close()
    opened(place).close()


def test_a_folder_that_cannot_be_used_is_said_to_be(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StrataError, match=r"conversations cannot be stored in .*file"):
        opened(tmp_path / "file")

    def unreadable(_: Path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(folder.os, "open", lambda *_: unreadable(tmp_path))
    with pytest.raises(StrataError, match="Permission denied; choose another folder"):
        opened(tmp_path / "other")


def test_a_file_is_deleted_when_nobody_needs_it(place) -> None:
    opening = opened(place)
    file = opening.save(*part(1))
    file.refs += 1
    opening.forget(file)
    assert opening.bytes > 0
    opening.forget(file)
    assert opening.bytes == 0
    again = opening.save(*part(1))
    opening.close()
    assert again.path.exists()
    assert [p.name for p in place.glob("*.strata")] == [again.path.name]


def test_a_file_given_up_before_it_is_written_never_appears(place) -> None:
    opening = opened(place)
    opening._jobs.put(lambda: time.sleep(0.1))
    file = opening.save(*part(1))
    opening.forget(file)
    opening.close()
    assert not file.path.exists()
    assert (opening.bytes, opening.pending) == (0, 0)


class Full:
    """A file on a disk that is full after so many writes."""

    def __init__(self, out, after: int):
        self._out = out
        self._left = after

    def seek(self, place):
        self._out.seek(place)

    def write(self, some):
        if not self._left:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._left -= 1
        self._out.write(some)


def keys(*symbols: int):
    """A part that is packed, in four pieces of which the last is short."""
    tensors = {"k": torch.randn(7 << 20, generator=torch.Generator().manual_seed(sum(symbols))).bfloat16()}
    return Header(PRINT, "checkpoint", "", symbols, len(symbols), 0, marked=False, tensors=describe(tensors)), tensors


def until_written(file) -> None:
    while file.state is FileState.PENDING:
        time.sleep(0.001)


@pytest.mark.parametrize(("make", "after"), [(part, 0), (part, 1), (keys, 0), (keys, 2), (keys, 4)])
def test_a_full_disk_loses_only_what_was_being_written(place, monkeypatch, caplog, make, after) -> None:
    opening = opened(place)
    kept = opening.save(*make(1))
    until_written(kept)
    write = fileformat.write
    monkeypatch.setattr(folder.fileformat, "write", lambda out, *rest: write(Full(out, after), *rest))
    assert opening.save(*make(1)).path == kept.path  # the same once more
    lost = opening.save(*make(2))
    until_written(lost)
    for name, tensor in make(1)[1].items():
        assert torch.equal(opening.load(kept)[name], tensor)
    opening.close()
    assert lost.state is FileState.FAILED
    assert "No space left on device" in caplog.text
    assert lost.path.name in caplog.text
    assert sorted(p.name for p in place.iterdir()) == sorted([kept.path.name, "lock"])
    assert (opening.bytes, opening.pending) == (kept.bytes, 0)
    assert kept.path.stat().st_size == kept.bytes


def test_a_file_counts_as_it_came_out_and_as_the_most_it_could_be_before(place) -> None:
    opening = opened(place)
    going, begun = Event(), Event()
    opening._jobs.put(lambda: (begun.set(), going.wait(20)))
    begun.wait(20)
    file = opening.save(*keys(1))
    most = fileformat.size_of(file.header)
    assert most > 14 << 20
    assert (opening.bytes, opening.pending, file.bytes) == (most, most, most)
    going.set()
    until_written(file)
    opening.close()
    assert file.bytes == file.path.stat().st_size < 0.7 * most
    assert (opening.bytes, opening.pending) == (file.bytes, 0)
    again = opened(place)
    (found,) = again.scan()
    assert found.bytes == again.bytes == file.bytes
    assert torch.equal(again.load(found)["k"], keys(1)[1]["k"])
    again.close()


def test_a_file_given_up_while_it_is_written_counts_nothing(place, monkeypatch) -> None:
    opening = opened(place)
    file = None
    write = fileformat.write

    def giving_up(*arguments):
        size = write(*arguments)
        opening.forget(file)
        return size

    going = Event()
    monkeypatch.setattr(folder.fileformat, "write", giving_up)
    opening._jobs.put(lambda: going.wait(20))
    file = opening.save(*keys(1))
    going.set()
    until_written(file)
    opening.close()
    assert (opening.bytes, opening.pending) == (0, 0)
    assert not file.path.exists()


def test_packed_files_are_left_alone_where_nobody_can_unpack_them(place, monkeypatch, caplog) -> None:
    first = opened(place)
    file = first.save(*keys(1))
    first.close()
    monkeypatch.setattr(packing, "zstd", None)
    second = opened(place)
    assert list(second.scan()) == []
    assert f"{file.path}: not used: it is packed, and this Python has no zstd" in caplog.text
    assert second.bytes == file.bytes
    second.close()
    monkeypatch.undo()
    third = opened(place)
    assert [found.path for found in third.scan()] == [file.path]
    third.close()


def test_space_that_is_to_stay_free_is_not_used(place, caplog) -> None:
    opening = opened(place, reserve=1 << 60)
    file = opening.save(*part(1))
    opening.close()
    assert file.state is FileState.FAILED
    assert "are to stay free" in caplog.text
    assert not file.path.exists()


def test_an_error_nobody_thought_of_does_not_stop_the_writer(place, caplog) -> None:
    opening = opened(place)
    header, tensors = part(1)
    broken = opening.save(header, {})
    fine = opening.save(*part(2))
    opening.close()
    assert (broken.state, fine.state) == (FileState.FAILED, FileState.READY)
    assert "could not be worked on" in caplog.text
    assert tensors
    assert opening.bytes == fine.bytes


def test_what_cannot_be_used_is_named_and_left_alone(place, caplog) -> None:  # case K17
    first = opened(place)
    mine = first.save(*part(1))
    first.close()
    other = opened(place, "b" * 32)
    header, tensors = part(2)
    theirs = other.save(
        Header(
            "b" * 32, *[getattr(header, n) for n in ("kind", "salt", "symbols", "start", "ratio", "marked", "tensors")]
        ),
        tensors,
    )
    assert list(other.scan()) == []
    assert f"{mine.path}: not used: it belongs to another model" in caplog.text
    other.close()
    (place / "foreign.strata").write_bytes(b"GGUF" + bytes(100))
    (place / "notes.txt").write_text("mine")
    (place / ("c" * 40 + ".strata")).write_bytes(mine.path.read_bytes())
    third = opened(place)
    assert [file.path for file in third.scan()] == [mine.path]
    assert "foreign.strata: not used: it begins with" in caplog.text
    assert "its name should be" in caplog.text
    assert theirs.path.exists()
    third.close()


def test_files_of_an_older_format_are_left_alone(place, caplog) -> None:
    first = opened(place)
    file = first.save(*part(1))
    first.close()
    whole = bytearray(file.path.read_bytes())
    whole[8] = 4
    file.path.write_bytes(whole)
    second = opened(place)
    assert list(second.scan()) == []
    assert "it has format version 4; this program reads version 6" in caplog.text
    assert second.bytes == file.bytes
    second.close()
    assert file.path.exists()


def test_files_of_other_models_go_first_when_room_is_needed(place) -> None:
    other = opened(place, "b" * 32)
    header, tensors = part(2)
    theirs = other.save(replace(header, fingerprint="b" * 32), tensors)
    other.close()
    mine = opened(place)
    (place / "notes.txt").write_text("mine")
    list(mine.scan())
    assert mine.bytes == theirs.bytes
    mine.forget_foreign(lambda: mine.bytes > 0)
    assert mine.bytes == 0
    assert not theirs.path.exists()
    assert (place / "notes.txt").exists()
    mine.close()


def test_a_damaged_file_is_replaced_by_the_same_part(place) -> None:
    first = opened(place)
    path = first.save(*part(1)).path
    first.close()
    path.write_bytes(path.read_bytes()[:-1])
    second = opened(place)
    assert list(second.scan()) == []
    again = second.save(*part(1))
    assert again.path == path
    assert second.bytes == again.bytes
    second.forget_foreign(lambda: True)
    second.close()
    assert path.stat().st_size == again.bytes == second.bytes


def test_another_file_in_the_place_of_one_is_noticed(place) -> None:
    opening = opened(place)
    one, two = opening.save(*part(1)), opening.save(*part(2))
    while two.state is FileState.PENDING:
        time.sleep(0.001)
    one.path.write_bytes(two.path.read_bytes())
    with pytest.raises(StoredFileError, match="another file took its place"):
        opening.load(one)
    two.path.unlink()
    with pytest.raises(StoredFileError, match="cannot be read: No such file"):
        opening.load(two)
    opening.close()


WRITER = """
    import sys
    from pathlib import Path
    import torch
    from strata.session.fileformat import Header, describe
    from strata.session.folder import Folder
    opened = Folder(Path(sys.argv[1]), "a" * 32, reserve=0)
    list(opened.scan())
    print("ready", flush=True)
    for i in range(10**9):
        symbols = (i % 7, int(sys.argv[2]))
        tensors = {"s": torch.full((40_000,), float(sum(symbols)))}
        file = opened.save(Header("a" * 32, "checkpoint", "", symbols, 2, 0, False, describe(tensors)), tensors)
        while opened.pending > 1 << 20:
            pass
"""


def test_ended_by_force_again_and_again_it_holds_whole_files_only(place) -> None:  # case Q06
    chance, seen = random.Random(1), 0
    env = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    for turn in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(place), str(turn)], stdout=subprocess.PIPE, env=env
        ) as child:
            assert child.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.0, 0.08))
            child.send_signal(signal.SIGKILL)
        opening = opened(place)
        assert not list(place.glob("*" + folder.UNFINISHED))
        files = list(opening.scan())
        assert {file.path for file in files} == set(place.glob("*.strata")), "under its own name a file is whole"
        for file in files:
            tensors = opening.load(file)
            assert torch.equal(tensors["s"], torch.full((40_000,), float(sum(file.header.symbols))))
            seen += 1
        opening.close()
    assert seen
