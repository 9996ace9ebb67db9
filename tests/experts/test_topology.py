"""The choice of processors, on machines written out as the kernel shows them."""

from pathlib import Path

import pytest

from strata.experts.pool import choose, read
from strata.experts.pool.topology import listed


def machine(root: Path, cores: list[dict], nodes: list[str] = (), **files: str) -> Path:
    """Write out a machine. A core: its processors, socket and, where there is one, capacity or highest clock."""
    for core in cores:
        for number in core["cpus"]:
            folder = root / f"sys/devices/system/cpu/cpu{number}"
            (folder / "topology").mkdir(parents=True)
            (folder / "topology/thread_siblings_list").write_text(",".join(map(str, core["cpus"])) + "\n")
            (folder / "topology/physical_package_id").write_text(f"{core.get('socket', 0)}\n")
            if "capacity" in core:
                (folder / "cpu_capacity").write_text(f"{core['capacity']}\n")
            if "clock" in core:
                (folder / "cpufreq").mkdir()
                (folder / "cpufreq/cpuinfo_max_freq").write_text(f"{core['clock']}\n")
    for number, cpus in enumerate(nodes):
        (root / f"sys/devices/system/node/node{number}").mkdir(parents=True)
        (root / f"sys/devices/system/node/node{number}/cpulist").write_text(cpus + "\n")
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def plain(count: int) -> list[dict]:
    return [{"cpus": [i]} for i in range(count)]


def chosen(root: Path, allowed, threads: int | None = None):
    return choose(read(root, allowed), threads)


def test_one_thread_per_physical_core(tmp_path):
    """Second threads of a core share its units: 4 cores of two threads, numbered as Linux does on Intel."""
    root = machine(tmp_path, [{"cpus": [i, i + 4]} for i in range(4)])
    assert chosen(root, range(8)).cpus == (0, 1, 2, 3)
    assert chosen(root, range(8)).why == "4 cores"
    assert chosen(root, range(8), 6).cpus == (0, 1, 2, 3, 4, 5)


def test_affinity_is_respected(tmp_path):
    root = machine(tmp_path, [{"cpus": [2 * i, 2 * i + 1]} for i in range(4)])
    assert chosen(root, {1, 4, 5, 7}).cpus == (1, 4, 7)


def test_performance_cores_come_first_by_clock(tmp_path):
    """Two favoured performance cores, four others, four efficiency cores at half the clock."""
    clocks = [5_800_000] * 2 + [5_500_000] * 4
    cores = [{"cpus": [2 * i, 2 * i + 1], "clock": clock} for i, clock in enumerate(clocks)]
    cores += [{"cpus": [12 + i], "clock": 4_100_000} for i in range(4)]
    root = machine(tmp_path, cores)
    choice = chosen(root, range(16))
    assert choice.cpus == (0, 2, 4, 6, 8, 10)
    assert choice.why == "6 performance cores"
    assert chosen(root, range(16), 12).cpus == (0, 2, 4, 6, 8, 10, 12, 13, 14, 15, 1, 3)


def test_performance_cores_by_capacity(tmp_path):
    capacities = [400] * 4 + [870] * 3 + [1024]
    root = machine(tmp_path, [{"cpus": [i], "capacity": c} for i, c in enumerate(capacities)])
    assert chosen(root, range(8)).cpus == (4, 5, 6, 7)


def test_efficiency_cores_that_are_named(tmp_path):
    """Intel names them; in a virtual machine no clock is shown."""
    root = machine(tmp_path, plain(6), sys__devices__cpu_atom__cpus="4-5\n", sys__devices__cpu_core__cpus="0-3\n")
    assert chosen(root, range(6)).cpus == (0, 1, 2, 3)


def test_one_memory_node_is_not_left(tmp_path):
    cores = [{"cpus": [i, i + 8], "socket": i // 4} for i in range(8)]
    root = machine(tmp_path, cores, nodes=["0-3,8-11", "4-7,12-15"])
    choice = chosen(root, range(16))
    assert choice.cpus == (0, 1, 2, 3)
    assert choice.why == "4 cores of memory node 0, one of 2"
    assert chosen(root, {0, 1, *range(4, 8)}).cpus == (4, 5, 6, 7)
    assert chosen(root, range(16), 6).cpus == (0, 1, 2, 3, 4, 5)


def test_sockets_stand_in_for_nodes(tmp_path):
    root = machine(tmp_path, [{"cpus": [i], "socket": i % 2} for i in range(4)])
    assert chosen(root, range(4)).cpus == (0, 2)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"proc__self__cgroup": "0::/a/b\n", "sys__fs__cgroup__a__cpu_dot_max": "250000 100000\n"}, (0, 1)),
        ({"proc__self__cgroup": "0::/a/b\n", "sys__fs__cgroup__a__b__cpu_dot_max": "max 100000\n"}, (0, 1, 2, 3)),
        ({"proc__self__cgroup": "0::/../../docker/x\n", "sys__fs__cgroup__cpu_dot_max": "300000 100000\n"}, (0, 1, 2)),
        ({"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu_dot_max": "50000 100000\n"}, (0,)),
        ({"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu_dot_max": "900000 100000\n"}, (0, 1, 2, 3)),
        (
            {
                "proc__self__cgroup": "4:cpu,cpuacct:/x\n3:memory:/y\n",
                "sys__fs__cgroup__cpu,cpuacct__x__cpu_dot_cfs_quota_us": "200000\n",
                "sys__fs__cgroup__cpu,cpuacct__x__cpu_dot_cfs_period_us": "100000\n",
                "sys__fs__cgroup__cpu,cpuacct__cpu_dot_cfs_quota_us": "-1\n",
                "sys__fs__cgroup__cpu,cpuacct__cpu_dot_cfs_period_us": "100000\n",
            },
            (0, 1),
        ),
    ],
    ids=["group above", "no limit", "inside a container", "half a processor", "more than there is", "version 1"],
)
def test_the_time_a_container_is_granted_limits_threads(tmp_path, files, cpus):
    root = machine(tmp_path, plain(4), **files)
    assert chosen(root, range(4)).cpus == cpus
    assert chosen(root, range(4), 4).cpus == (0, 1, 2, 3)  # a number that was asked for is taken as it is


def test_more_threads_than_processors_are_not_pinned(tmp_path):
    assert chosen(machine(tmp_path, plain(2)), range(2), 4).cpus == (0, 1, None, None)


def test_a_system_that_says_nothing(tmp_path):
    assert chosen(tmp_path, [0, 1]).cpus == (0, 1)
    assert choose(read(tmp_path, [])).cpus == (None,)


def test_this_machine_has_a_processor():
    assert len(choose(read()).cpus) >= 1


def test_lists_of_the_kernel():
    assert listed("0-3,8,10-11") == [0, 1, 2, 3, 8, 10, 11]
    assert listed("") == []
