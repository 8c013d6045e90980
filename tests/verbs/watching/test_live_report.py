"""``report`` of a real job that failed: the archive unpacked, and searched for its secrets."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator

import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.verbs.watching.report import write_report
from tests.agent.live import LiveAgent, free_port
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

TOKEN = "hf_" + "aBcDeFgHiJ" * 3
PASSWORD = "hunter2hunter2"

SMI = f"""#!/bin/sh
echo "Driver Version : 570.1"
echo "Process : train.py --api-key {TOKEN}"
"""

SCRIPT = """
import os, sys
print("step 1 of 2")
print("using", os.environ["DB_PASSWORD"], "and", sys.argv[2], flush=True)
raise ValueError("rejected: " + os.environ["DB_PASSWORD"])
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    state = tmp_path_factory.mktemp("reported")
    made = LiveAgent("node1", "127.88.2.1", free_port("127.88.2.1"), state)
    programs = state / "programs"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(SMI)
    (programs / "nvidia-smi").chmod(0o755)
    try:
        yield made.start(environment={"PATH": f"{programs}:/usr/bin:/bin"})
    finally:
        made.end()


def test_the_archive_of_a_failed_job_has_its_evidence_and_no_secret(agent: LiveAgent) -> None:
    with Cluster(agent.cluster, addresses=[agent.where]) as cluster:
        until(lambda: [node.liveness for node in cluster.nodes()] == ["up"], "the node")
        spec = JobSpec(
            entry=("script.py", "--api-key", TOKEN),
            files={"script.py": SCRIPT},
            participants=cluster.participants(["node1:1"]),
            environment={"DB_PASSWORD": PASSWORD},
        )
        job = cluster.launch(spec)
        assert job.wait(PATIENCE_S).state == "failed"
        packed = io.BytesIO()
        write_report(packed, job, cluster)
    with zipfile.ZipFile(packed) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    everything = "".join(parts.values())
    assert TOKEN not in everything
    assert PASSWORD not in everything
    assert "ValueError: rejected: ***" in parts["verdict.txt"]
    assert "step 1 of 2" in parts["logs/node1.txt"]
    (part,) = json.loads(parts["job.json"])["parts"]
    assert {disk["use"] for disk in part["evidence"]["disks"]} >= {"job", "shared memory"}
    assert part["evidence"]["files"]
    assert json.loads(parts["nodes/node1.json"])["info"]["inventory"]["versions"]["torch"]
    assert "torch " in parts["nodes/node1.packages.txt"]
    assert "Driver Version : 570.1" in parts["nodes/node1.nvidia-smi.txt"]
