"""What a driver does works without what only Linux has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.cluster import Cluster
from tests.agent.live import LiveAgent

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
    ]
    told = subprocess.run(
        [sys.executable, "-m", "tests.cluster.macos"],
        input=json.dumps(
            [[*line[:1], "--cluster", cluster.name, *where, *line[1:]] for line in lines]
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    for line, one in zip(lines, json.loads(told.stdout), strict=True):
        assert one["code"] == 0, (line, one)
        assert "Error" not in one["errors"], (line, one)
    assert (tmp_path / "home" / "model.bin").read_bytes() == b"content"
    assert [one.name for one in (tmp_path / "back").iterdir()] == ["weights"]
