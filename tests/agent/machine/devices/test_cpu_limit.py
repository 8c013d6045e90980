"""CPU limit: read from control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.devices import cpu_limit


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cpu_limit, "CGROUPS", tmp_path)
    monkeypatch.setattr(cpu_limit, "OWN", tmp_path / "own")
    monkeypatch.setattr(cpu_limit, "usable_cpus", lambda: 4)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_limits_all_cores_may_be_used(groups: Path) -> None:
    assert cpu_limit.cores() == 4.0, "nor can the groups be read"
    write(groups / "own", "0::/user.slice\n")
    write(groups / "user.slice" / "cpu.max", "max 100000\n")
    assert cpu_limit.cores() == 4.0


def test_the_tightest_limit_counts_whichever_group_above_has_it(groups: Path) -> None:
    write(groups / "own", "0::/user.slice/mntrain.service\n")
    write(groups / "user.slice" / "cpu.max", "150000 100000\n")
    write(groups / "user.slice" / "mntrain.service" / "cpu.max", "200000 100000\n")
    assert cpu_limit.cores() == 1.5


def test_limits_of_version_1_are_read_too(groups: Path) -> None:
    write(groups / "own", "12:memory:/x\n4:cpu,cpuacct:/host1\n0::/\n")
    write(groups / "cpu" / "cpu.cfs_quota_us", "-1\n")
    write(groups / "cpu" / "cpu.cfs_period_us", "100000\n")
    write(groups / "cpu" / "host1" / "cpu.cfs_quota_us", "50000\n")
    write(groups / "cpu" / "host1" / "cpu.cfs_period_us", "100000\n")
    assert cpu_limit.cores() == 0.5
