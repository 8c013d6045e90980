"""The acceptance between nodes: a launch of the product on two real agents, and its report.

Without all cases, ``test_stand_in.py`` has a bare torchrun start the same ranks, and
``tests/cluster/test_projects.py`` launches a project: this one takes 40 s of CPU to be sent.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.live import addresses_of, two_agents
from tests.gpu.ranks import ROOT
from tests.searches import runs_all
from tests.trusted import install_drivers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not runs_all(), reason="a minute of CPU: set MNTRAIN_ALL_CASES"),
]


def test_two_nodes_hold_between_them_and_their_report_is_here(tmp_path: Path) -> None:
    configuration = tmp_path / "configuration"
    install_drivers(configuration)
    network = f"127.{150 + os.getpid() % 50}.{secrets.randbelow(250)}"
    report = tmp_path / "report"
    with two_agents(network, tmp_path / "agents", "test") as agents:
        environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(configuration),
            "MNTRAIN_AGENTS": addresses_of(agents),
            "MNTRAIN_CLUSTER": "test",
            "PYTHON": sys.executable,
        }
        words = ["--device", "cpu", "--report", str(report), "--nodes", "node1", "node2"]
        done = subprocess.run(
            [str(ROOT / "scripts" / "gpu-check"), *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((report / "gpu-check-nodes.json").read_text())
    assert told["state"] == "held"
    held = {item["name"] for item in told["items"] if item["state"] == "held"}
    assert held >= {"2 ranks: eager-1f1b", "2 ranks: zbv"}
    page = (report / "gpu-check-nodes.txt").read_text()
    assert page in done.stdout
    assert "rank 1 on node2: no card" in page
    assert max(map(len, page.splitlines())) <= 80
