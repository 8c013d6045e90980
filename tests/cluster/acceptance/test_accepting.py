"""``accept`` over two real agents that share this machine: all of it, and nothing stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.metrics.acceptance.acceptance_report import AcceptanceReport
from tests.agent.live import LiveAgent, addresses_of
from tests.cluster.conftest import wait_for

RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "{text}"
vocabulary_size = 300
sequence_length = 16
[pipeline]
microbatches = 4
[train]
batch_size = 4
[report]
to = []
"""


BUSY_S = 1000.0
"""On a machine that is busy with other work; alone it takes about a minute."""

QUICK = {
    "MNTRAIN_ACCEPTANCE_RUN_S": "4",
    "MNTRAIN_ACCEPTANCE_FIRST_STEPS": "10",
    "MNTRAIN_BENCH_LARGEST_BYTES": "65536",
}


@pytest.mark.slow
@pytest.mark.timeout(1100)
def test_two_nodes_of_one_machine_are_accepted_but_for_what_shared_cores_hide(
    agents: list[LiveAgent], cluster: Cluster, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text(RECIPE.format(text=text))
    report = accepted(agents, tmp_path, "--recipe", "tiny.toml", *only(but="commands"))
    verdicts = {one.key: one.judgment for one in report.criteria}
    reasons = {one.key: one.why for one in report.criteria}
    hidden = {"scaling-2", "bandwidth", "rdma", "node-lost", "link-down", "documented-path"}
    assert {key for key, one in verdicts.items() if one == "not judged"} == hidden, reasons
    assert set(verdicts.values()) == {"passed", "not judged"}, reasons
    assert [len(one.nodes) for one in report.observed.scaling] == [1, 2]
    assert all(one.tokens_per_s for one in report.observed.scaling)
    assert report.observed.resumption is not None
    assert report.observed.resumption.compared > 0
    assert {path.suffix for path in tmp_path.glob("done.*")} == {".json", ".html", ".ipynb"}
    wait_for(lambda: cluster.jobs() == ())


def only(*, but: str) -> list[str]:
    parts = ("scaling", "bandwidth", "gang", "failures", "resume", "cleanup", "commands")
    return [word for part in parts if part != but for word in ("--only", part)]


def accepted(agents: list[LiveAgent], directory: Path, *words: str) -> AcceptanceReport:
    """What a user gets who types it."""
    command = [sys.executable, "-m", "jupyter_mntrain.cli", "--json", "accept", "-o", "done"]
    done = subprocess.run(
        [*command, *words],
        check=False,
        cwd=directory,
        env={**os.environ, **place(agents), **QUICK},
        capture_output=True,
        text=True,
        timeout=BUSY_S,
    )
    assert done.stdout, done.stderr
    data: Any = json.loads(done.stdout)
    report = msgspec.convert(data, AcceptanceReport)
    assert [one for one in report.criteria if one.judgment == "failed"] == [], done.stderr
    assert done.returncode == 0, done.stderr
    assert report == msgspec.json.decode(
        (directory / "done.json").read_bytes(), type=AcceptanceReport
    )
    return report


def place(agents: list[LiveAgent]) -> dict[str, str]:
    return {"MNTRAIN_CLUSTER": agents[0].cluster, "MNTRAIN_AGENTS": addresses_of(agents)}
