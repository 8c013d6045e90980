"""CPU and memory limits: read from control groups of both versions, and told by an allocation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_mntrain.agent.machine.devices import limits


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    monkeypatch.setattr(limits, "OWN", tmp_path / "own")
    monkeypatch.setattr(limits, "affine_cpus", lambda: 4)
    machine = SimpleNamespace(total=64 << 30, available=32 << 30)
    monkeypatch.setattr(limits.psutil, "virtual_memory", lambda: machine)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_limits_all_cores_may_be_used(groups: Path) -> None:
    assert limits.cores() == 4.0, "nor can the groups be read"
    write(groups / "own", "0::/user.slice\n")
    write(groups / "user.slice" / "cpu.max", "max 100000\n")
    assert limits.cores() == 4.0


def test_the_tightest_limit_counts_whichever_group_above_has_it(groups: Path) -> None:
    write(groups / "own", "0::/user.slice/mntrain.service\n")
    write(groups / "user.slice" / "cpu.max", "150000 100000\n")
    write(groups / "user.slice" / "mntrain.service" / "cpu.max", "200000 100000\n")
    assert limits.cores() == 1.5


@pytest.mark.parametrize(
    ("listed", "frozen", "other"),
    [
        ("0::/docker/7f\n", ("docker/cgroup.events", "populated 1\nfrozen 1\n"), "frozen 0\n"),
        ("4:freezer:/docker/7f\n", ("freezer/docker/7f/freezer.state", "FROZEN\n"), "THAWED\n"),
    ],
)
def test_a_frozen_group_is_found_whichever_above_is(
    groups: Path, listed: str, frozen: tuple[str, str], other: str
) -> None:
    write(groups / "its", listed)
    assert limits.frozen_group(groups / "its") is None
    name, text = frozen
    write(groups / name, other)
    assert limits.frozen_group(groups / "its") is None
    write(groups / name, text)
    assert limits.frozen_group(groups / "its") == (groups / name).parent


def test_limits_of_version_1_are_read_too(groups: Path) -> None:
    write(groups / "own", "12:memory:/x\n4:cpu,cpuacct:/host1\n0::/\n")
    write(groups / "cpu" / "cpu.cfs_quota_us", "-1\n")
    write(groups / "cpu" / "cpu.cfs_period_us", "100000\n")
    write(groups / "cpu" / "host1" / "cpu.cfs_quota_us", "50000\n")
    write(groups / "cpu" / "host1" / "cpu.cfs_period_us", "100000\n")
    assert limits.cores() == 0.5


def test_ranks_share_the_cores_that_may_be_kept_busy(groups: Path) -> None:
    assert limits.usable_cpus({}) == 4
    write(groups / "own", "0::/pod\n")
    write(groups / "pod" / "cpu.max", "150000 100000\n")
    assert limits.usable_cpus({}) == 2
    write(groups / "pod" / "cpu.max", "20000 100000\n")
    assert limits.usable_cpus({}) == 1


@pytest.mark.parametrize(("told", "cores"), [("2", 2.0), ("16", 4.0), ("x", 4.0)])
def test_an_allocation_gives_some_of_the_cores(groups: Path, told: str, cores: float) -> None:
    assert groups
    assert limits.cores({"SLURM_CPUS_ON_NODE": told}) == cores


def test_without_limits_all_memory_may_be_used(groups: Path) -> None:
    assert limits.usable_memory({}) == (64 << 30, 32 << 30)
    write(groups / "own", "7:memory:/job\n0::/\n")
    write(groups / "memory" / "memory.limit_in_bytes", "9223372036854771712\n")
    assert limits.usable_memory({}) == (64 << 30, 32 << 30)


@pytest.mark.parametrize(
    ("own", "folder", "most", "used", "cached"),
    [
        ("0::/pod", "pod", "memory.max", "memory.current", "inactive_file"),
        (
            "7:memory:/job",
            "memory/job",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ],
)
def test_a_control_group_limits_memory_and_its_cache_is_free(
    groups: Path, own: str, folder: str, most: str, used: str, cached: str
) -> None:
    write(groups / "own", f"{own}\n")
    write(groups / folder / most, f"{8 << 30}\n")
    write(groups / folder / used, f"{5 << 30}\n")
    write(groups / folder / "memory.stat", f"anon 1\n{cached} {2 << 30}\n")
    assert limits.usable_memory({}) == (8 << 30, 5 << 30)


def test_an_allocation_gives_some_of_the_memory(groups: Path) -> None:
    assert groups
    assert limits.usable_memory({"SLURM_MEM_PER_NODE": "2048"}) == (2 << 30, 2 << 30)
    assert limits.usable_memory({"SLURM_MEM_PER_NODE": "0"}) == (64 << 30, 32 << 30)
