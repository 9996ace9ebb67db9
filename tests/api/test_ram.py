from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from strata.loading import ram
from strata.loading.planning import available
from strata.loading.shown import shown_bytes
from strata.memory.budget import least

GIB = 1 << 30


def tree(root: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A kernel's view: the list of groups, and files below the mount."""
    listed = root / "cgroup"
    listed.write_text(groups)
    for name, text in files.items():
        path = root / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return listed, root / "mount"


@pytest.fixture(autouse=True)
def _machine(monkeypatch) -> None:
    memory = psutil.virtual_memory()._replace(total=64 * GIB, available=40 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def test_without_groups_the_system_decides(tmp_path) -> None:
    assert ram.measure(tmp_path / "none", tmp_path) == ram.Ram(64 * GIB, 40 * GIB, None)


def test_version_2_limits_count_without_the_file_cache(tmp_path) -> None:
    files = {
        "a/b/memory.max": f"{8 * GIB}\n",
        "a/b/memory.current": f"{5 * GIB}\n",
        "a/b/memory.stat": f"anon {3 * GIB}\ninactive_file {2 * GIB}\n",
    }
    assert ram.measure(*tree(tmp_path, "0::/a/b\n", files)) == ram.Ram(64 * GIB, 5 * GIB, 8 * GIB)


def test_a_group_further_up_limits_too(tmp_path) -> None:
    files = {
        "a/memory.max": f"{4 * GIB}\n",
        "a/memory.current": f"{1 * GIB}\n",
        "a/memory.stat": "inactive_file 0\n",
        "a/b/memory.max": "max\n",
        "a/b/memory.current": f"{1 * GIB}\n",
        "a/b/memory.stat": "inactive_file 0\n",
    }
    assert ram.measure(*tree(tmp_path, "0::/a/b\n", files)) == ram.Ram(64 * GIB, 3 * GIB, 4 * GIB)


def test_inside_a_container_the_group_is_the_mount_itself(tmp_path) -> None:
    files = {"memory.max": f"{2 * GIB}", "memory.current": "0", "memory.stat": ""}
    for listed in ("0::/\n", "0::/../../docker/abc\n", "0::/docker/abc\n"):
        assert ram.measure(*tree(tmp_path, listed, files)) == ram.Ram(64 * GIB, 2 * GIB, 2 * GIB)


def test_version_1_limits_count(tmp_path) -> None:
    files = {
        "memory/x/memory.limit_in_bytes": f"{6 * GIB}\n",
        "memory/x/memory.usage_in_bytes": f"{3 * GIB}\n",
        "memory/x/memory.stat": f"cache {GIB}\ntotal_inactive_file {GIB}\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",  # none
        "memory/memory.usage_in_bytes": f"{30 * GIB}\n",
        "memory/memory.stat": "total_inactive_file 0\n",
    }
    groups = "5:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/\n"
    assert ram.measure(*tree(tmp_path, groups, files)) == ram.Ram(64 * GIB, 4 * GIB, 6 * GIB)


def test_a_limit_beyond_the_machine_is_none(tmp_path) -> None:
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": f"{30 * GIB}\n",
        "memory/memory.stat": "total_inactive_file 0\n",
    }
    assert ram.measure(*tree(tmp_path, "4:memory:/\n", files)) == ram.Ram(64 * GIB, 40 * GIB, None)


def test_a_used_up_limit_leaves_nothing(tmp_path) -> None:
    files = {"memory.max": f"{2 * GIB}", "memory.current": f"{3 * GIB}", "memory.stat": "inactive_file 0"}
    assert ram.measure(*tree(tmp_path, "0::/\n", files)).available == 0


def test_what_this_process_has_for_itself_counts_as_available_up_to_its_part_of_a_plan() -> None:
    there = ram.Ram(64 * GIB, 8 * GIB, None, own=300_000_000)
    assert available(there, gpu=False) == 8 * GIB + 300_000_000
    large = replace(there, own=20 * GIB)  # somebody's own numbers in the process, which nothing can give back
    assert available(large, gpu=False) == 8 * GIB + least.HOST_ALONE
    assert available(large, gpu=True) == 8 * GIB + least.HOST
    assert available(replace(large, limit=8 * GIB), gpu=False) == 8 * GIB
    assert 0 < ram.private() < 8 * GIB


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (16_100_000, "16.1 MB"), (128 * 10**9, "128 GB")],
)
def test_sizes_have_three_digits(count, shown) -> None:
    assert shown_bytes(count) == shown
