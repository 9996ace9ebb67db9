"""Downloads from a stand-in of the hub: whole, cut, damaged, refused, out of space; and what is left behind."""

import errno
import json
import shutil
import threading
from collections import namedtuple
from pathlib import Path

import pytest

from strata.hub.errors import HubError
from strata.hub.folder import Folder
from strata.hub.name import parsed
from strata.hub.pull import order, pull
from strata.hub.remote import Hub
from strata.hub.transfer import TRIES
from support.hub import COMMIT, OLDER, Fault

REPO = "maker/Flash-GGUF"
ONE, TWO = "Flash-IQ3_XXS-00001-of-00002.gguf", "Flash-IQ3_XXS-00002-of-00002.gguf"


def bring(hub: Hub, folder: Folder, name: str = f"{REPO}:IQ3_XXS", revision: str | None = None, **options):
    pauses: list[float] = []
    steps: list[tuple[int, int]] = []
    wanted = order(hub, parsed(name), revision, **options)
    receipt = pull(hub, wanted, folder, lambda done, total: steps.append((done, total)), pause=pauses.append)
    return receipt, steps, pauses


def same(site, folder: Folder, receipt) -> bool:
    home = folder.home(receipt.repo)
    return all((home / path).read_bytes() == site.files[receipt.repo][path] for path in receipt.files)


def test_a_split_set_with_its_draft_head(site, hub, folder) -> None:
    receipt, steps, pauses = bring(hub, folder)
    assert same(site, folder, receipt)
    assert (receipt.files, receipt.draft) == ((ONE, TWO), "mtp/Flash-mtp-Q2_0.gguf")
    assert (folder.home(REPO) / receipt.draft).read_bytes() == site.files[REPO][receipt.draft]
    assert (receipt.name, receipt.revision, receipt.endpoint) == (f"{REPO}:IQ3_XXS", COMMIT, site.url)
    done, total = steps[-1]
    assert done == total == sum(len(site.files[REPO][path]) for path in (*receipt.files, receipt.draft))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert not pauses
    assert not list(folder.path.rglob("*.part"))
    assert not (folder.home(REPO) / "mmproj-BF16.gguf").exists()
    assert folder.find(f"{REPO}:iq3_xxs") == folder.home(REPO) / ONE
    assert folder.find(REPO) == folder.home(REPO) / ONE, "the only one"


def test_a_set_in_a_folder_of_its_own_without_the_draft_head(site, hub, folder) -> None:
    receipt, *_ = bring(hub, folder, f"{REPO}:UD-Q4_K_XL", draft=False)
    assert same(site, folder, receipt)
    assert len(receipt.files) == 3
    assert receipt.draft == ""
    assert folder.find(f"{REPO}:UD-Q4_K_XL") == folder.home(REPO) / "UD-Q4_K_XL/Flash-UD-Q4_K_XL-00001-of-00003.gguf"


def test_a_repository_of_one_model_needs_no_quant(site, hub, folder) -> None:
    receipt, *_ = bring(hub, folder, "maker/Single")
    assert same(site, folder, receipt)
    assert receipt.name == "maker/Single:model"


def test_pulled_again_nothing_is_asked_for(site, hub, folder) -> None:
    bring(hub, folder)
    site.asked.clear()
    receipt, steps, _ = bring(hub, folder)
    assert site.asked == []
    assert steps[-1][0] == steps[-1][1]
    (folder.home(REPO) / TWO).unlink()
    bring(hub, folder)
    assert {path for path, _ in site.asked} == {TWO}
    assert same(site, folder, receipt)


def test_files_that_came_another_way_are_checked_and_taken(site, hub, folder) -> None:
    home = folder.home(REPO)
    home.mkdir(parents=True)
    (home / ONE).write_bytes(site.files[REPO][ONE])
    (home / TWO).write_bytes(bytes(len(site.files[REPO][TWO])))
    receipt, *_ = bring(hub, folder)
    assert {path for path, _ in site.asked} == {TWO, receipt.draft}
    assert same(site, folder, receipt)


def test_a_line_that_breaks_is_taken_up_where_it_broke(site, hub, folder) -> None:
    site.faults[ONE] = Fault(cut=400_000, times=3)
    receipt, _, pauses = bring(hub, folder)
    assert same(site, folder, receipt)
    starts = [int(asked.removeprefix("bytes=").partition("-")[0]) for path, asked in site.asked if path == ONE]
    assert starts == sorted(set(starts))
    assert len(starts) >= 3
    assert site.served < sum(map(len, site.files[REPO].values())), "little came twice"
    assert pauses == [], "as long as something comes there is no pause"


def test_what_an_interrupted_pull_left_is_used_by_the_next(site, hub, folder) -> None:
    site.faults[ONE] = Fault(cut=0)
    with pytest.raises(HubError, match=r"0 B of 1\.57 MB are here, and the same command goes on from there"):
        bring(hub, folder)
    wanted = order(hub, parsed(f"{REPO}:IQ3_XXS"))

    class StoppedError(Exception):
        pass

    def stop(done: int, _total: int) -> None:
        if done > 1_000_000:
            raise StoppedError

    site.faults.clear()
    with pytest.raises(StoppedError):
        pull(hub, wanted, folder, stop)
    with pytest.raises(HubError, match=r"is not complete\. `strata pull"):
        folder.find(f"{REPO}:IQ3_XXS")
    left = [path.stat().st_size for path in folder.path.rglob("*.part")]
    assert max(left) > 1_000_000
    site.asked.clear()
    receipt, steps, _ = bring(hub, folder)
    assert site.asked[0] == (ONE, f"bytes={max(left)}-{len(site.files[REPO][ONE]) - 1}")
    assert steps[0][0] == max(left)
    assert same(site, folder, receipt)


def test_nothing_comes_any_more(site, hub, folder) -> None:
    site.faults[TWO] = Fault(cut=0)
    pauses: list[float] = []
    with pytest.raises(HubError, match=rf"{TWO}: the connection was lost"):
        pull(hub, order(hub, parsed(f"{REPO}:IQ3_XXS")), folder, pause=pauses.append)
    assert len(pauses) == TRIES - 1
    assert pauses == sorted(pauses)
    assert sum(pauses) < 130


def test_a_server_that_knows_no_ranges(site, hub, folder) -> None:
    site.faults[ONE] = Fault(cut=1_200_000, times=1, whole=True)
    receipt, *_ = bring(hub, folder)
    assert same(site, folder, receipt)


def test_files_are_asked_for_in_pieces(site, hub, folder, monkeypatch) -> None:
    monkeypatch.setattr("strata.hub.transfer.PIECE", 500_000)
    receipt, *_ = bring(hub, folder, "maker/Flash-GGUF:IQ3_XXS")
    assert same(site, folder, receipt)
    assert [asked for path, asked in site.asked if path == ONE][:2] == ["bytes=0-499999", "bytes=500000-999999"]


def test_damaged_bytes_never_get_the_files_name(site, hub, folder) -> None:
    site.faults[TWO] = Fault(wrong=True)
    with pytest.raises(HubError, match=rf"{TWO} is damaged: its checksum is \w{{16}}…, not \w{{16}}….*removed"):
        bring(hub, folder)
    assert not (folder.home(REPO) / TWO).exists()
    assert not list(folder.path.rglob("*.part"))
    assert list(folder.receipts()) == []
    site.faults.clear()
    receipt, *_ = bring(hub, folder)
    assert same(site, folder, receipt)


def test_a_part_that_was_changed_meanwhile_is_found_out(site, hub, folder) -> None:
    site.faults[ONE] = Fault(cut=300_000, times=TRIES + 1)
    wanted = order(hub, parsed(f"{REPO}:IQ3_XXS"))
    with pytest.raises(ZeroDivisionError):
        pull(hub, wanted, folder, lambda done, _: done < 200_000 or 1 // 0, pause=lambda _: None)
    (part,) = folder.path.rglob("*.part")
    part.write_bytes(bytes(part.stat().st_size))
    site.faults.clear()
    with pytest.raises(HubError, match="is damaged"):
        bring(hub, folder)


def test_files_of_git_itself_are_checked_too(site, hub, folder) -> None:
    site.git.add("model.gguf")
    receipt, *_ = bring(hub, folder, "maker/Single")
    assert same(site, folder, receipt)
    site.faults["model.gguf"] = Fault(wrong=True)
    (folder.home("maker/Single") / "model.gguf").unlink()
    with pytest.raises(HubError, match="is damaged"):
        bring(hub, folder, "maker/Single")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            f"{REPO}:IQ4_NL",
            r"has no IQ4_NL; .*It has .*Flash-GGUF:IQ3_XXS \(2\.47 MB\), .*Flash-GGUF:UD-Q4_K_XL \(3\.30 MB\)",
        ),
        (REPO, r"has several models; name one: .*Flash-GGUF:IQ3_XXS \(2\.47 MB\), "),
        ("maker/Nothing:Q2", r"http://127\.0\.0\.1:\d+ has no maker/Nothing, or it is private; check its spelling"),
        (
            "maker/Gated:Q2",
            r"maker/Gated is gated: its owner wants terms accepted first, at https://huggingface.co/maker/Gated",
        ),
    ],
    ids=["quant", "several", "absent", "gated"],
)
def test_what_cannot_be_had_says_why(site, hub, folder, name, why) -> None:
    site.gated.add("maker/Gated")
    with pytest.raises(HubError, match=why):
        bring(hub, folder, name)
    assert not folder.path.exists()


def test_a_private_one_asks_for_a_login(site, hub, folder) -> None:
    site.private.add("maker/Single")
    with pytest.raises(HubError, match=r"`hf auth login`, or set HF_TOKEN, and say --login, so that http"):
        bring(hub, folder, "maker/Single")


@pytest.mark.parametrize(
    ("status", "headers", "waits"),
    [(429, {"Retry-After": "7"}, [7.0, 7.0]), (503, {}, [2.0, 4.0]), (429, {"Retry-After": "9999"}, [60.0, 60.0])],
)
def test_a_busy_hub_is_given_time(site, hub, folder, status, headers, waits) -> None:
    site.faults[ONE] = Fault(status=status, times=2, headers=headers)
    receipt, _, pauses = bring(hub, folder)
    assert same(site, folder, receipt)
    assert pauses == waits


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (404, "has no maker/Single/model.gguf"),
        (403, r"refuses maker/Single/model.gguf \(403\); log in with"),
        (401, "log in with|is private"),
        (429, r"model.gguf: http://.* asks for fewer requests \(429\); try again later; 0 B of 300 kB are here"),
    ],
)
def test_a_file_that_is_refused(site, hub, folder, status, why) -> None:
    site.faults["model.gguf"] = Fault(status=status)
    with pytest.raises(HubError, match=why):
        bring(hub, folder, "maker/Single")


@pytest.mark.parametrize(("status", "why"), [(429, "asks for fewer requests"), (500, "fails")])
def test_a_list_that_is_refused(site, hub, folder, status, why) -> None:
    site.faults[""] = Fault(status=status)
    with pytest.raises(HubError, match=why):
        bring(hub, folder, "maker/Single")


def test_what_is_no_hub(site, monkeypatch) -> None:
    with pytest.raises(HubError, match=r"cannot be reached: .*; --hub-endpoint names a mirror"):
        order(Hub("http://127.0.0.1:9"), parsed("maker/Single"))
    monkeypatch.setattr(site, "listing", lambda *_: b"<html>")
    with pytest.raises(HubError, match="does not answer like a hub"):
        order(Hub(site.url), parsed("maker/Single"))


def test_a_revision_is_one_commit_for_all_files(hub, folder) -> None:
    receipt, *_ = bring(hub, folder, revision="v1")
    assert receipt.revision == OLDER
    with pytest.raises(HubError, match="has no revision nope; without --revision"):
        bring(hub, folder, revision="nope")


def test_a_mirror_is_not_shown_the_login(site, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: "hf_secret")
    order(Hub(site.url), parsed("maker/Single"))
    order(Hub(site.url, login=True), parsed("maker/Single"))
    assert site.tokens == [None, "Bearer hf_secret"]


def test_too_little_space_is_known_before(site, hub, folder, monkeypatch) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**10, 0, 1_074_000_000))
    with pytest.raises(HubError, match=r"2\.52 MB are to come, but 1\.07 GB are free below .*make room for 2\.\d+ MB"):
        bring(hub, folder)
    assert site.asked == []


def test_a_disk_that_fills_up_keeps_what_came(site, hub, folder, monkeypatch) -> None:
    real = Path.open

    class Full:
        """A file on a disk that takes 500,000 bytes."""

        def __init__(self, file) -> None:
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, data) -> int:
            room = 500_000 - self.file.tell()
            if room <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(data[:room])

    monkeypatch.setattr(
        Path,
        "open",
        lambda self, mode="r", *a, **k: Full(real(self, mode, *a, **k)) if mode == "ab" else real(self, mode, *a, **k),
    )
    with pytest.raises(
        HubError, match=r"the disk is full: Flash-IQ3_XXS-00001-of-00002\.gguf needs 1\.07 MB more, and .* are free"
    ):
        bring(hub, folder)
    monkeypatch.setattr(Path, "open", real)
    site.asked.clear()
    receipt, *_ = bring(hub, folder)
    assert site.asked[0][1] is not None
    assert site.asked[0][1].startswith("bytes=500000-")
    assert same(site, folder, receipt)


def test_two_pulls_of_one_repository_do_not_meet(hub, folder) -> None:
    wanted, go, inside = order(hub, parsed(f"{REPO}:IQ3_XXS")), threading.Event(), threading.Event()

    def wait(_done: int, _total: int) -> None:
        inside.set()
        assert go.wait(60)

    first = threading.Thread(target=pull, args=(hub, wanted, folder, wait))
    first.start()
    assert inside.wait(60)
    with pytest.raises(HubError, match="another `strata pull` of maker/Flash-GGUF is running"):
        pull(hub, wanted, folder)
    go.set()
    first.join()
    assert folder.find(f"{REPO}:IQ3_XXS") is not None


@pytest.mark.parametrize("path", ["../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "a\\..\\evil.gguf"])
def test_a_hub_cannot_choose_where_files_go(site, hub, folder, path) -> None:
    site.files["maker/Evil"] = {path: b"x"}
    with pytest.raises(HubError, match="which could lie anywhere"):
        bring(hub, folder, "maker/Evil")


def test_a_receipt_says_what_is_there(hub, folder) -> None:
    receipt, *_ = bring(hub, folder)
    assert list(folder.receipts()) == [receipt]
    path = folder.receipt_path(REPO, "IQ3_XXS")
    path.write_text(json.dumps({"repo": "x"}))
    assert list(folder.receipts()) == [], "not one of ours"
    folder.write(receipt)
    (folder.home(REPO) / TWO).write_bytes(b"short")
    with pytest.raises(HubError, match=r"is gone or not as it was pulled; run `strata pull"):
        folder.find(f"{REPO}:IQ3_XXS")
