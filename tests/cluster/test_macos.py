"""What a driver does works without what only Linux has."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Cluster
from tests.agent.live import LiveAgent
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SCRIPT = """
import pathlib, sys
import conf
from jupyter_mntrain.telemetry import Recorder

with Recorder() as recorder:
    for step in range(1, 6):
        recorder.step(tokens=100, loss=1 / step)
pathlib.Path(sys.argv[1], "model.bin").write_bytes(conf.CONTENT)
print("done with", conf.CONTENT)
"""


def test_every_verb_of_a_driver(agents: list[LiveAgent], cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "conf.py").write_text('CONTENT = b"content"\n')
    (tmp_path / "._conf.py").write_bytes(b"\0attributes of macOS")
    (tmp_path / "model").mkdir()
    for name in ("weights", ".DS_Store", "._weights"):
        (tmp_path / "model" / name).write_bytes(name.encode())
    where = [word for agent in agents for word in ("--agent", agent.where)]
    first = [f"{agents[0].name}:1"]
    lines = [
        ["launch", "train.py", "--name", "mac", "--member", *first, "--wait", "--", "{out}"],
        ["nodes"],
        ["jobs"],
        ["status", "JOB"],
        ["logs", "JOB"],
        ["settings", "JOB"],
        ["pull", "JOB", "--list"],
        ["pull", "JOB:outputs", "home"],
        ["push", "model", agents[0].name],
        ["pull", f"{agents[0].name}:models:model", "back"],
        ["du"],
        ["gc"],
        ["history", agents[0].name],
        ["doctor", agents[0].name],
        ["plot", "JOB", "--output", "job.png"],
        ["config"],
        ["report", "JOB", "--output", "report.zip"],
        ["export", "JOB", "--output", "job.toml"],
        ["rm", "JOB", "--yes"],
    ]
    of_a_cluster = [line for line in lines if line[0] != "config"]
    told = subprocess.run(
        [sys.executable, "-m", "tests.cluster.macos"],
        input=json.dumps(
            [
                [*line[:1], "--cluster", cluster.name, *where, *line[1:]]
                if line in of_a_cluster
                else line
                for line in lines
            ]
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    for line, one in zip(lines, json.loads(told.stdout), strict=True):
        # The doctor may find something on this machine.
        assert one["code"] == 0 or (line[0] == "doctor" and one["code"] == 1), (line, one)
        assert "Error" not in one["errors"], (line, one)
    assert (tmp_path / "home" / "model.bin").read_bytes() == b"content"
    assert [one.name for one in (tmp_path / "back").iterdir()] == ["weights"]
    assert (tmp_path / "job.png").read_bytes().startswith(b"\x89PNG")
    assert zipfile.is_zipfile(tmp_path / "report.zip")
    assert tomllib.loads((tmp_path / "job.toml").read_text())
