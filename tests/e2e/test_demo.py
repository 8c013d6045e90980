"""Demo: it gives figures and a notebook with plots, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from jupyter_mntrain.agent.attempt.processes import environment_of
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"
DEMO_S = 1000.0
"""On a machine that is busy with other work; alone it takes about a minute."""

QUICK = {"MNTRAIN_DEVICES_PIECE_S": "0.01", "MNTRAIN_DEVICES_LONGEST_ROUND_S": "0.1"}
"""Measuring CPUs takes 15 s of each; how well that is done is no subject of these tests."""
MARK = "MNTRAIN_TEST_OF_THE_DEMO"


def start(output: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(DEMO), "--output", str(output), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **QUICK, MARK: str(output)},
    )


def left(output: Path) -> list[int]:
    """Whatever inherited the demo's environment and still lives."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if environment_of(pid).get(MARK) == str(output)]


def test_it_trains_across_two_nodes_and_keeps_the_plots(tmp_path):
    figures = tmp_path / "figures.json"
    demo = start(tmp_path, "--json", str(figures))
    said, _ = demo.communicate(timeout=DEMO_S)
    assert demo.returncode == 0, said

    found = json.loads(figures.read_text())
    assert found["state"] == "succeeded"
    assert found["nodes"] == ["node1", "node2"]
    assert found["world_size"] == 2
    assert found["job_id"] in said
    assert found["loss"] < found["first_loss"] - 0.5
    assert found["tokens_per_s"] > 0
    assert all(0 < share < 1 for share in found["mfu_per_rank"].values())
    links = {(one["link"], one["direction"]): one for one in found["link_utilization"]}
    assert len(links) == 4
    for one in links.values():
        assert one["capacity"]["source"] == "measured"
        assert 0 < one["utilization"] < 1

    notebook = nbformat.read(found["notebook"], as_version=4)
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert pictures
    assert said.rstrip().endswith(found["notebook"]), "something is printed after the last line"
    assert "Traceback" not in json.dumps(notebook)
    until(lambda: not left(tmp_path), f"nothing to be left of the demo: {left(tmp_path)}")


@pytest.mark.parametrize(
    ("number", "when"), [(signal.SIGINT, "have joined"), (signal.SIGTERM, "%%mntrain launch")]
)
def test_interrupted_it_leaves_nothing(tmp_path, number, when):
    demo = start(tmp_path)
    assert demo.stdout is not None
    for line in demo.stdout:
        if when in line:
            break
    else:
        pytest.fail(f"the demo ended before it said {when!r}")
    demo.send_signal(number)
    said, _ = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 130, said
    until(lambda: not left(tmp_path), f"nothing to be left of the demo: {left(tmp_path)}")
