"""``scripts/smoke`` through a real sshd: nothing is left, and a failure is one archive."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netlab import Host, Lab, missing, own_lab
from tests.netlab.sshd import (
    client,
    listens,
    missing_sshd,
    packages_without_ours,
    start_sshd,
    with_path,
)
from tests.searches import runs_all
from tests.waiting import until

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.skipif(not runs_all(), reason="minutes: set MNTRAIN_ALL_CASES"),
]

SMOKE = Path(__file__).parents[2] / "scripts" / "smoke.py"
ONLY = ("--", "--only", "scaling", "--nodes", "1")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    why_not = missing() or missing_sshd()
    if why_not is not None:
        pytest.skip(f"simulated cluster: {why_not}")
    with own_lab(2) as made:
        node, driver = made.hosts
        start_sshd(node, packages_without_ours(made.directory / "packages"))
        client(driver, [(node, 22)])
        until(lambda: listens(driver, "node1"), "the sshd")
        yield made


def agents(host: Host) -> list[int]:
    lines = ((pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in host.pids())
    return [pid for pid, line in lines if b"jupyter_mntrain.agent" in line]


def smoke(lab: Lab, folder: Path, *words: str) -> tuple[int, str]:
    driver = lab.host("node2")
    command = ["env", f"--chdir={folder}", sys.executable, str(SMOKE), *words]
    done = driver.run(command, timeout_s=900, environment=with_path(driver.home / "ssh"))
    return done.returncode, done.stdout + done.stderr


def test_a_machine_is_tried_and_left_as_it_was(lab: Lab, tmp_path: Path) -> None:
    code, said = smoke(lab, tmp_path, "root@node1", *ONLY)
    assert code == 0, said
    assert (tmp_path / "smoke.json").exists()
    assert not agents(lab.host("node1"))
    assert not list((lab.host("node2").home / ".config").glob("mntrain/clusters/*"))


def test_a_failure_leaves_one_archive_without_keys(lab: Lab, tmp_path: Path) -> None:
    code, said = smoke(lab, tmp_path, "root@node1", *ONLY, "--recipe", "no-such-recipe")
    assert code == 1, said
    (archive,) = tmp_path.iterdir()
    assert archive.name in said
    with tarfile.open(archive) as found:
        names = [Path(one).name for one in found.getnames()]
    assert {"install.log", "accept.log", "nodes.log", "logs-1.log"} <= set(names)
    assert not [one for one in names if one.endswith((".pem", ".key"))]
    assert not agents(lab.host("node1"))
